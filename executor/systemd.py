"""What does a service manager want to hear, and what does it hand over?

The protocols of sd_notify(3) and sd_listen_fds(3), which are a datagram and three variables.
"""

from __future__ import annotations

import contextlib
import os
import socket

_FIRST_DESCRIPTOR = 3


def notify(text: str) -> None:
    """Tell the manager, if there is one, like ``READY=1``. Never raises."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        client.connect(address)
        client.send(text.encode())


def watchdog_seconds() -> float | None:
    """How often the manager wants a sign of life (half of its limit); None: it does not."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    limit = os.environ.get("WATCHDOG_USEC", "")
    return int(limit) / 2e6 if limit.isdigit() and int(limit) > 0 else None


def handed_over() -> list[socket.socket]:
    """The listening sockets that the manager opened for us; once."""
    count = os.environ.pop("LISTEN_FDS", "")
    owner = os.environ.pop("LISTEN_PID", "")
    os.environ.pop("LISTEN_FDNAMES", None)
    if owner != str(os.getpid()) or not count.isdigit():
        return []
    found = []
    for descriptor in range(_FIRST_DESCRIPTOR, _FIRST_DESCRIPTOR + int(count)):
        os.set_inheritable(descriptor, False)
        one = socket.socket(fileno=descriptor)
        one.setblocking(False)
        found.append(one)
    return found
