"""How does a program run on a kernel that lacks a system call?

``without.py NUMBERS PROGRAM …``: the calls with these numbers (comma-separated) answer ENOSYS, to
the program and to whatever it starts. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

_LOAD, _EQUAL, _ANSWER = 0x20, 0x15, 0x06
_ALLOW, _NO_SUCH_CALL = 0x7FFF0000, 0x00050000 | 38
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 38, 22, 2


def main(numbers: list[int], command: list[str]) -> None:
    """Filter, then become the program."""
    lines = [(_LOAD, 0, 0, 0)]
    for number in numbers:
        lines += [(_EQUAL, 0, 1, number), (_ANSWER, 0, 0, _NO_SUCH_CALL)]
    lines.append((_ANSWER, 0, 0, _ALLOW))
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
    whole = struct.pack("HxxxxxxQ", len(lines), ctypes.addressof(program))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.prctl(_PR_SET_SECCOMP, _FILTER, ctypes.c_char_p(whole), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    os.execv(command[0], command)


if __name__ == "__main__":
    main([int(number) for number in sys.argv[1].split(",")], sys.argv[2:])
