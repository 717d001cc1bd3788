"""What becomes of the readable list of system calls?

Theory of operation
-------------------
``policies/seccomp/hook.toml`` says which calls a hook may make; ``compile_profile`` turns it into
classic BPF for one machine. Pure: the same text gives the same bytes. The program is

1. the machine's own architecture, else the process is killed (i386's calls by ``int 0x80`` have
   other numbers), and on x86_64 no x32 number;
2. a balanced tree over ranges of numbers that share an answer: some seven comparisons for any call
   (the kernel caches calls that are allowed without a look at their arguments);
3. at the leaves an answer, or tests on arguments. A test sees the low 32 bits, as the kernel does:
   compared as 64 bits, ``ioctl(fd, TIOCSTI | 1 << 32)`` would pass.

Rules for editors: a conditional jump reaches 255 instructions, only one that always jumps reaches
everywhere; the tree's far side may need the latter.
"""

from __future__ import annotations

import errno
import platform
import struct
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from executor.paths import data_directory

INSTRUCTION = struct.Struct("<HBBI")
"""struct sock_filter: code, jump if true, jump if false, constant. Little-endian machines only."""

LOAD, AND, JUMP, EQUAL, GREATER_EQUAL, ANY_BIT, ANSWER = 0x20, 0x54, 0x05, 0x15, 0x35, 0x45, 0x06
ALLOW, ERRNO, KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
NUMBER_OFFSET, ARCHITECTURE_OFFSET, ARGUMENTS_OFFSET = 0, 4, 16
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
X32_BIT = 0x40000000
MAX_INSTRUCTIONS = 4096
MAX_REACH = 255


@dataclass(frozen=True, slots=True)
class Test:
    """One look at the low half of an argument."""

    argument: int
    mask: int
    any_bit: int
    equals: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """``matched`` when every test of one of ``cases`` holds, else ``otherwise``."""

    otherwise: int
    matched: int = 0
    cases: tuple[tuple[Test, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class _Line:
    code: int
    constant: int
    if_true: int = 0
    if_false: int = 0


def compile_profile(text: str, machine: str) -> bytes:
    """The filter, as ``struct sock_filter[]``. Raises ValueError on what is no profile."""
    if machine not in ARCHITECTURES:
        raise ValueError(f"no system call numbers for the machine {machine!r}")
    default, by_name = _read(text)
    numbers = syscall_numbers(machine)
    unknown = sorted(name for name in by_name if name not in _all_names())
    if unknown:
        raise ValueError(f"no such system calls: {', '.join(unknown)}")
    answers = {numbers[name]: answer for name, answer in by_name.items() if name in numbers}
    lines = [
        _Line(LOAD, ARCHITECTURE_OFFSET),
        _Line(EQUAL, ARCHITECTURES[machine], if_true=1),
        _Line(ANSWER, KILL_PROCESS),
        _Line(LOAD, NUMBER_OFFSET),
    ]
    if machine == "x86_64":
        lines += [_Line(ANY_BIT, X32_BIT, if_false=1), _Line(ANSWER, KILL_PROCESS)]
    lines += _tree(_ranges(answers, default))
    if len(lines) > MAX_INSTRUCTIONS:
        raise ValueError(f"{len(lines)} instructions; the kernel takes {MAX_INSTRUCTIONS}")
    return b"".join(
        INSTRUCTION.pack(line.code, line.if_true, line.if_false, line.constant) for line in lines
    )


@cache
def hook_program() -> bytes:
    """The hook's filter for this machine."""
    return compile_profile(_profile("hook.toml"), platform.machine())


@cache
def outer_profile() -> str:
    """The JSON that an engine puts around the cell itself: looser, for it covers PID 1 too."""
    return _profile("container.json")


def _profile(name: str) -> str:
    return (data_directory("policies") / "seccomp" / name).read_text(encoding="utf-8")


# ------------------------------------------------------------------------------------- system calls


@cache
def _table() -> tuple[tuple[str, ...], ...]:
    text = resources.files("executor.cell").joinpath("syscalls.csv").read_text(encoding="ascii")
    return tuple(tuple(line.split(",")) for line in text.splitlines())


@cache
def syscall_numbers(machine: str) -> Mapping[str, int]:
    """Name → number. A call that the machine does not have is not in it."""
    heading, *rows = _table()
    column = heading.index(machine)
    return {row[0]: int(row[column]) for row in rows if row[column]}


@cache
def _all_names() -> frozenset[str]:
    return frozenset(row[0] for row in _table()[1:])


# ---------------------------------------------------------------------------------------- the text


def _read(text: str) -> tuple[Answer, Mapping[str, Answer]]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"not TOML: {error}") from error
    unknown = set(document) - {"default", "allow", "deny", "inspect"}
    if unknown:
        raise ValueError(f"unknown keys: {', '.join(sorted(unknown))}")
    answers: dict[str, Answer] = {}
    for kind, answer in _ENTRIES.items():
        for entry in document.get(kind, []):
            given = answer(entry)
            for name in entry["calls"]:
                if name in answers:
                    raise ValueError(f"{name} stands twice")
                answers[name] = given
    return Answer(_errno(document["default"])), answers


def _errno(name: str) -> int:
    number = getattr(errno, name, None)
    if not isinstance(number, int):
        raise ValueError(f"no such errno: {name}")  # noqa: TRY004  (it is the text that is wrong)
    return ERRNO | number


def _allowed(entry: Mapping[str, Any]) -> Answer:
    _only(entry, {"about", "calls"})
    return Answer(ALLOW)


def _denied(entry: Mapping[str, Any]) -> Answer:
    _only(entry, {"about", "calls", "errno"})
    return Answer(_errno(entry["errno"]))


def _inspected(entry: Mapping[str, Any]) -> Answer:
    _only(entry, {"about", "calls", "errno", "allow_if", "deny_if"})
    if ("allow_if" in entry) == ("deny_if" in entry):
        raise ValueError(f"{entry['calls']}: one of allow_if and deny_if")
    cases = tuple(
        tuple(_test(test) for test in case) for case in entry.get("allow_if", entry.get("deny_if"))
    )
    if not cases or not all(cases):
        raise ValueError(f"{entry['calls']}: a case without a test")
    no = _errno(entry["errno"])
    return Answer(no, ALLOW, cases) if "allow_if" in entry else Answer(ALLOW, no, cases)


def _test(entry: Mapping[str, Any]) -> Test:
    _only(entry, {"argument", "mask", "any_bit", "equals"})
    if ("any_bit" in entry) == ("equals" in entry) or ("any_bit" in entry and "mask" in entry):
        raise ValueError(f"a test is any_bit, or equals with or without mask: {dict(entry)}")
    equals = entry.get("equals", [])
    test = Test(
        argument=entry["argument"],
        mask=entry.get("mask", 0xFFFFFFFF),
        any_bit=entry.get("any_bit", 0),
        equals=tuple(equals) if isinstance(equals, list) else (equals,),
    )
    numbers = (test.mask, test.any_bit, *test.equals)
    if not 0 <= test.argument <= 5 or not all(0 <= number <= 0xFFFFFFFF for number in numbers):
        raise ValueError(f"out of range: {dict(entry)}")
    return test


def _only(entry: Mapping[str, Any], known: set[str]) -> None:
    unknown = set(entry) - known
    if unknown or not entry.get("calls", True):
        raise ValueError(f"unknown keys or no calls in {dict(entry)}")


_ENTRIES = {"allow": _allowed, "deny": _denied, "inspect": _inspected}


# ------------------------------------------------------------------------------------- the program


def _ranges(answers: Mapping[int, Answer], default: Answer) -> list[tuple[int, Answer]]:
    """(first number, answer), each until the next one's first. Covers every number."""
    ranges = [(0, answers.get(0, default))]
    for number in range(1, max(answers, default=0) + 2):
        answer = answers.get(number, default)
        if answer != ranges[-1][1]:
            ranges.append((number, answer))
    return ranges


def _tree(ranges: list[tuple[int, Answer]]) -> list[_Line]:
    if len(ranges) == 1:
        return _leaf(ranges[0][1])
    middle = len(ranges) // 2
    below, above = _tree(ranges[:middle]), _tree(ranges[middle:])
    first = ranges[middle][0]
    if len(below) <= MAX_REACH:
        return [_Line(GREATER_EQUAL, first, if_true=len(below)), *below, *above]
    return [_Line(GREATER_EQUAL, first, if_false=1), _Line(JUMP, len(below)), *below, *above]


def _leaf(answer: Answer) -> list[_Line]:
    lines: list[_Line] = []
    for case in answer.cases:
        lines += _case(case, answer.matched)
    return [*lines, _Line(ANSWER, answer.otherwise)]


def _case(tests: Iterable[Test], matched: int) -> list[_Line]:
    """Falls through to what follows unless every test holds."""
    lines = [_Line(ANSWER, matched)]
    for test in reversed(tuple(tests)):
        lines = [*_look(test, len(lines)), *lines]
    return lines


def _look(test: Test, rest: int) -> list[_Line]:
    load = _Line(LOAD, ARGUMENTS_OFFSET + 8 * test.argument)
    if test.any_bit:
        return [load, _Line(ANY_BIT, test.any_bit, if_false=rest)]
    masked = [] if test.mask == 0xFFFFFFFF else [_Line(AND, test.mask)]
    last = len(test.equals) - 1
    return [
        load,
        *masked,
        *(
            _Line(EQUAL, value, if_true=last - index, if_false=rest if index == last else 0)
            for index, value in enumerate(test.equals)
        ),
    ]
