"""Do two hooks that run at the same time notice each other?"""

from __future__ import annotations

import pytest

from tests.security.stage import Stage

KEY = 0x484F4F4B

FIRST = f"""
import ctypes, os, time
libc = ctypes.CDLL(None)
open('/tmp/token', 'w').write('first')
for make in (libc.shmget, libc.semget, libc.msgget):
    words = (4096,) if make is libc.shmget else (1,) if make is libc.semget else ()
    assert make({KEY}, *words, 0o1666) >= 0
child = os.fork()
if child == 0: time.sleep(60)
open('out/ready', 'x').close()
while not os.path.exists('out/done'): time.sleep(0.01)
print(sorted(os.listdir('/tmp')))
os.kill(child, 0)
"""

SECOND = f"""
import ctypes, os, time
libc = ctypes.CDLL(None, use_errno=True)
while not os.path.exists('out/ready'): time.sleep(0.01)
seen = []
if os.path.exists('/tmp/token'): seen.append('tmp')
for make, words in ((libc.shmget, (4096,)), (libc.semget, (1,)), (libc.msgget, ())):
    if make({KEY}, *words, 0) >= 0: seen.append('ipc')
for pid in range(1, 40_000):
    if pid in (1, os.getpid()): continue
    try: os.kill(pid, 9); seen.append(pid)
    except OSError as error:
        if error.errno != 3: seen.append(error.errno)
for pid in filter(str.isdigit, os.listdir('/proc')):
    if int(pid) not in (1, os.getpid()): seen.append(pid)
open('out/done', 'x').close()
print(seen)
"""


@pytest.mark.probe(
    "M1", "seeing a hook that runs at the same time", "namespaces, a /tmp of its own"
)
def test_two_hooks_do_not_see_each_other(stage: Stage) -> None:
    stage.policy('[filesystem]\nwrite = ["out"]\n')
    ((first, second),) = stage.emit(
        stage.python_hook(FIRST, timeout_ms=20_000), stage.python_hook(SECOND, timeout_ms=20_000)
    )
    assert (first.status, second.status) == ("ok", "ok"), (first, second)
    assert "token" in first.text
    assert second.text == "[]\n"


@pytest.mark.probe("M2", "leaving something for the hook that comes next", "nothing is kept")
def test_nothing_is_kept_for_the_next_hook(stage: Stage) -> None:
    code = "ls -A /tmp /dev/shm /run/hook 2>/dev/null; echo x > /tmp/left; : > /dev/shm/left"
    first, second = (answers[0] for answers in stage.emit(stage.bash(code), times=2))
    assert first.text == second.text
    assert "left" not in second.text
