"""Is the network that root's sandboxes share another one than ours, and empty?"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from executor.cell import network

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="root: only root's sandboxes share one")
LINKS = """
import ctypes, os, sys
if ctypes.CDLL(None).setns(os.open(sys.argv[1], os.O_RDONLY), 0x40000000):
    sys.exit("setns failed")
print(open("/proc/thread-self/net/dev").read())
print(len(open("/proc/thread-self/net/route").readlines()[1:]), "routes")
"""


@root_only
def test_it_is_not_the_hosts_and_making_it_moves_no_thread_of_ours() -> None:
    before = os.stat("/proc/self/ns/net").st_ino
    made = network.make()
    assert made is not None
    try:
        assert os.fstat(made.descriptor).st_ino != before
        assert os.stat("/proc/self/ns/net").st_ino == before
        assert os.stat("/proc/thread-self/ns/net").st_ino == before
    finally:
        made.close()


@root_only
def test_it_holds_nothing_but_a_loopback_and_no_route() -> None:
    made = network.make()
    assert made is not None
    try:
        seen = subprocess.run(
            [sys.executable, "-c", LINKS, made.path], check=True, capture_output=True, text=True
        ).stdout
    finally:
        made.close()
    interfaces = [line.split(":")[0].strip() for line in seen.splitlines() if ":" in line]
    assert interfaces == ["lo"]
    assert seen.splitlines()[-1] == "0 routes"


@pytest.mark.skipif(os.geteuid() == 0, reason="an ordinary user: root gets one")
def test_an_ordinary_user_gets_none() -> None:
    assert network.make() is None
