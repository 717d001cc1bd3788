"""The compiled filter, run by an interpreter, gives each call the answer that the text says."""

from __future__ import annotations

import errno
import json
import platform
from collections.abc import Iterator

import pytest

from executor.cell import seccomp
from executor.cell.seccomp import ALLOW, ERRNO, INSTRUCTION, KILL_PROCESS, compile_profile
from executor.paths import data_directory

TEXT = (data_directory("policies") / "seccomp" / "hook.toml").read_text()
MACHINES = tuple(seccomp.ARCHITECTURES)


def answer(machine: str, number: int, *arguments: int, architecture: int | None = None) -> int:
    """What the kernel would do. Pure BPF, the subset that the compiler writes."""
    return interpret(
        _program(machine), number, arguments, architecture or seccomp.ARCHITECTURES[machine]
    )


def _program(machine: str, known: dict[str, bytes] = {}) -> bytes:  # noqa: B006  (a cache)
    if machine not in known:
        known[machine] = compile_profile(TEXT, machine)
    return known[machine]


def interpret(program: bytes, number: int, arguments: tuple[int, ...], architecture: int) -> int:
    padded = [*arguments, *[0] * (6 - len(arguments))]
    data = number.to_bytes(4, "little") + architecture.to_bytes(4, "little") + bytes(8)
    data += b"".join((value & (2**64 - 1)).to_bytes(8, "little") for value in padded)
    lines: list[tuple[int, int, int, int]] = list(INSTRUCTION.iter_unpack(program))
    at, accumulator = 0, 0
    while True:
        code, if_true, if_false, constant = lines[at]
        at += 1
        if code == seccomp.LOAD:
            accumulator = int.from_bytes(data[constant : constant + 4], "little")
        elif code == seccomp.AND:
            accumulator &= constant
        elif code == seccomp.JUMP:
            at += constant
        elif code == seccomp.ANSWER:
            return constant
        else:
            holds = {
                seccomp.EQUAL: accumulator == constant,
                seccomp.GREATER_EQUAL: accumulator >= constant,
                seccomp.ANY_BIT: bool(accumulator & constant),
            }[code]
            at += if_true if holds else if_false


def call(machine: str, name: str, *arguments: int) -> int:
    return answer(machine, seccomp.syscall_numbers(machine)[name], *arguments)


def no(name: str) -> int:
    return ERRNO | int(getattr(errno, name))


HIGH = 1 << 32
O_CREAT, O_TMPFILE = 0o100, 0o20000000
TABLE = [
    ("read", (), ALLOW),
    ("execve", (), ALLOW),
    ("futex", (), ALLOW),
    ("mount", (), no("EPERM")),
    ("unshare", (), no("EPERM")),
    ("clone3", (), no("ENOSYS")),
    ("openat2", (), no("ENOSYS")),
    ("io_uring_setup", (), no("ENOSYS")),
    ("keyctl", (), no("ENOSYS")),
    ("listmount", (), no("ENOSYS")),
    ("socket", (1, 1), no("EAFNOSUPPORT")),
    ("socket", (2, 1), no("EAFNOSUPPORT")),
    ("socketpair", (1, 1), ALLOW),
    ("socketpair", (1, 0o2000000 | 0o4000 | 1), ALLOW),
    ("socketpair", (1, 5), ALLOW),
    ("socketpair", (1, 2), no("EAFNOSUPPORT")),
    ("socketpair", (1, 3), no("EAFNOSUPPORT")),
    ("socketpair", (1 | HIGH, 2 | HIGH), no("EAFNOSUPPORT")),
    ("socketpair", (2, 1), no("EAFNOSUPPORT")),
    ("connect", (), no("EPERM")),
    ("clone", (17,), ALLOW),
    ("clone", (0x3D0F00,), ALLOW),  # what pthread_create asks for
    ("clone", (0x10000000 | 17,), no("EPERM")),
    ("clone", (0x20000 | 17,), no("EPERM")),
    ("clone", (0x02000000,), no("EPERM")),
    ("clone", (0x40000000 | HIGH,), no("EPERM")),
    ("fchmod", (3, 0o755), ALLOW),
    ("fchmod", (3, 0o4755), no("EPERM")),
    ("fchmod", (3, 0o2755), no("EPERM")),
    ("fchmod", (3, 0o1777), ALLOW),
    ("fchmodat", (3, 0, 0o4755), no("EPERM")),
    ("fchmodat2", (3, 0, 0o2000), no("EPERM")),
    ("fchmodat2", (3, 0, 0o644), ALLOW),
    ("mkdirat", (3, 0, 0o2755), no("EPERM")),
    ("openat", (3, 0, 0, 0o4755), ALLOW),  # rubbish in the register: there is no O_CREAT
    ("openat", (3, 0, O_CREAT | 1, 0o4755), no("EPERM")),
    ("openat", (3, 0, O_TMPFILE | 1, 0o2755), no("EPERM")),
    ("openat", (3, 0, O_CREAT | HIGH, 0o4755 | HIGH), no("EPERM")),
    ("openat", (3, 0, O_CREAT, 0o644), ALLOW),
    ("mknodat", (3, 0, 0o100644), ALLOW),
    ("mknodat", (3, 0, 0o644), ALLOW),
    ("mknodat", (3, 0, 0o010600), ALLOW),
    ("mknodat", (3, 0, 0o104755), no("EPERM")),
    ("mknodat", (3, 0, 0o020666), no("EPERM")),
    ("mknodat", (3, 0, 0o060666), no("EPERM")),
    ("mknodat", (3, 0, 0o140666), no("EPERM")),
    ("ioctl", (0, 0x5401), ALLOW),
    ("ioctl", (0, 0x5412), no("EPERM")),
    ("ioctl", (0, 0x5412 | HIGH), no("EPERM")),
    ("fcntl", (0, 1024), no("EPERM")),
    ("fcntl", (0, 2), ALLOW),
    ("personality", (0xFFFFFFFF,), ALLOW),
    ("personality", (0x40000,), no("EPERM")),
    ("personality", (0x400000,), no("EPERM")),
    ("seccomp", (1, 0), ALLOW),
    ("seccomp", (1, 8), no("EPERM")),
    ("prlimit64", (0,), ALLOW),
    ("prlimit64", (1,), no("EPERM")),
    ("sched_setscheduler", (1, 5), no("EPERM")),
    ("sched_setscheduler", (1 | HIGH, 5), no("EPERM")),
    ("sched_setscheduler", (7, 5), ALLOW),
    ("setpriority", (0, 0, 5), ALLOW),
    ("setpriority", (0, 1, 5), no("EPERM")),
    ("setpriority", (2, 0, 5), no("EPERM")),
    ("ioprio_set", (3, 0, 5), no("EPERM")),
    ("ptrace", (), no("EPERM")),
]
ONLY_X86 = [
    ("open", (0, O_CREAT, 0o4755), no("EPERM")),
    ("open", (0, 0, 0o4755), ALLOW),
    ("creat", (0, 0o4755), no("EPERM")),
    ("chmod", (0, 0o2755), no("EPERM")),
    ("mkdir", (0, 0o4755), no("EPERM")),
    ("mknod", (0, 0o020666), no("EPERM")),
    ("fork", (), ALLOW),
    ("iopl", (3,), no("EPERM")),
]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("name", "arguments", "expected"), TABLE)
def test_each_call_gets_its_answer(
    machine: str, name: str, arguments: tuple[int, ...], expected: int
) -> None:
    assert call(machine, name, *arguments) == expected


@pytest.mark.parametrize(("name", "arguments", "expected"), ONLY_X86)
def test_calls_that_only_x86_64_has_are_inspected_too(
    name: str, arguments: tuple[int, ...], expected: int
) -> None:
    assert call("x86_64", name, *arguments) == expected


@pytest.mark.parametrize("machine", MACHINES)
def test_every_number_gets_the_answer_of_its_line_and_unknown_ones_are_enosys(
    machine: str,
) -> None:
    default, by_name = seccomp._read(TEXT)
    numbers = seccomp.syscall_numbers(machine)
    by_number = {numbers[name]: given for name, given in by_name.items() if name in numbers}
    for number in [*range(1200), 0x3FFFFFFF]:
        expected = by_number.get(number, default)
        if not expected.cases:
            assert answer(machine, number) == expected.otherwise, number


@pytest.mark.parametrize("machine", MACHINES)
def test_another_architecture_is_killed(machine: str) -> None:
    for architecture in (0x40000003, 0x40000028, *seccomp.ARCHITECTURES.values()):
        if architecture != seccomp.ARCHITECTURES[machine]:
            assert answer(machine, 0, architecture=architecture) == KILL_PROCESS


def test_x32_numbers_are_killed() -> None:
    for number in (0x40000000, 0x40000001, 0x40000000 | 41, 0xFFFFFFFF):
        assert answer("x86_64", number) == KILL_PROCESS


@pytest.mark.parametrize("machine", MACHINES)
def test_every_jump_lands_inside_and_the_kernel_would_take_it(machine: str) -> None:
    lines = list(INSTRUCTION.iter_unpack(_program(machine)))
    assert len(lines) <= seccomp.MAX_INSTRUCTIONS
    assert lines[-1][0] == seccomp.ANSWER
    for at, target in _jumps(lines):
        assert at < target < len(lines)


def _jumps(lines: list[tuple[int, ...]]) -> Iterator[tuple[int, int]]:
    for at, (code, if_true, if_false, constant) in enumerate(lines):
        if code == seccomp.JUMP:
            yield at, at + 1 + constant
        elif code in (seccomp.EQUAL, seccomp.GREATER_EQUAL, seccomp.ANY_BIT):
            yield at, at + 1 + if_true
            yield at, at + 1 + if_false


INSPECT = 'default = "EPERM"\n[[inspect]]\ncalls = ["read"]\nerrno = "EPERM"\n'


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("default =", "not TOML"),
        ('default = "ENOTHING"', "no such errno"),
        ('default = "EPERM"\nallowed = 1', "unknown keys"),
        ('default = "EPERM"\n[[allow]]\ncalls = ["raed"]', "no such system calls: raed"),
        ('default = "EPERM"\n[[allow]]\ncalls = ["read", "read"]', "stands twice"),
        ('default = "EPERM"\n[[allow]]\ncalls = []', "no calls"),
        ('default = "EPERM"\n[[deny]]\ncalls = ["read"]\nerrno = "EPERM"\nif = 1', "unknown keys"),
        ('default = "EPERM"\n[[inspect]]\ncalls = ["read"]\nerrno = "EPERM"', "one of"),
        (
            'default = "EPERM"\n[[inspect]]\ncalls = ["read"]\nerrno = "EPERM"\ndeny_if = [[]]',
            "without a test",
        ),
        (
            INSPECT + "deny_if = [[{argument = 6, equals = 1}]]",
            "out of range",
        ),
    ],
)
def test_a_profile_with_a_mistake_is_no_profile(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        compile_profile(text, "x86_64")


def test_a_machine_without_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="riscv64"):
        compile_profile(TEXT, "riscv64")


def test_this_machines_program_is_compiled_once() -> None:
    assert seccomp.hook_program() is seccomp.hook_program()
    assert seccomp.hook_program() == _program(platform.machine())


def test_the_engines_outer_profile_lets_through_whatever_the_inner_one_may_allow() -> None:
    outer = json.loads(seccomp.outer_profile())
    allowed = {
        name
        for entry in outer["syscalls"]
        if entry["action"] == "SCMP_ACT_ALLOW"
        for name in entry["names"]
    }
    _, by_name = seccomp._read(TEXT)
    may = {name for name, given in by_name.items() if ALLOW in (given.otherwise, given.matched)}
    assert may <= allowed
    assert allowed - may == {"openat2"}  # the cell's own; its hook's filter is on top
    denied = {
        name: entry["errnoRet"]
        for entry in outer["syscalls"]
        if entry["action"] == "SCMP_ACT_ERRNO"
        for name in entry["names"]
    }
    never = {name: given.otherwise & 0xFFFF for name, given in by_name.items() if name not in may}
    assert denied == {name: number for name, number in never.items() if name != "openat2"}
