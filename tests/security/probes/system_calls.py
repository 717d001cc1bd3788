"""S. Does the kernel answer each system call as the profile says, inside a real sandbox?

``tests/unit/cell/test_seccomp.py`` asks an interpreter the same of the compiled filter; here the
kernel answers. Arguments are chosen to be harmless where there is no filter: bad addresses, bad
descriptors, bad magic numbers.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping

from executor.cell.seccomp import syscall_numbers
from tests.security.probe import Outside, Probe

MACHINE = platform.machine()
NUMBERS: Mapping[str, int] = syscall_numbers(MACHINE)

Arguments = tuple[int, ...]
BAD = (1 << 64) - 1
"""An address that is none, a descriptor that is none."""


def row(number: str, name: str, answer: str, calls: Mapping[str, Arguments]) -> Probe:
    """One row of the table: these calls all get this answer, and outside at least one does not."""
    here = {call: words for call, words in calls.items() if call in NUMBERS}
    lines = [
        f"print({call!r}, syscall({NUMBERS[call]}, {', '.join(map(str, words))}))"
        for call, words in here.items()
    ]
    held = "\n".join(f"{call} {answer}" for call in here)
    return Probe(
        number,
        f"{name}: {', '.join(here)}",
        "\n".join(lines),
        held=held,
        succeeds=rf"(?!{held}$).*" if answer != "ENOSYS" else rf".* (?!{answer})\w+(\n.*|$)",
        outside=Outside.ROOT,
        wall="system call filter",
    )


def facts(number: str, name: str, code: str, held: str, succeeds: str = "") -> Probe:
    """Calls that depend on an argument."""
    outside = Outside.HOST if succeeds else Outside.NOWHERE
    reason = "" if succeeds else "a fact about this filter"
    wall = "system call filter"
    return Probe(number, name, code, held, wall, succeeds, outside, reason)


NAMED = f"number = {dict(NUMBERS)!r}\n"

PROBES = (
    row(
        "S1",
        "mounts and roots",
        "EPERM",
        {
            "mount": (0, BAD, 0, 0, 0),
            "umount2": (BAD, 0xFFFF),
            "pivot_root": (BAD, BAD),
            "chroot": (BAD,),
            "fsopen": (BAD, 0),
            "fsconfig": (BAD, 0, 0, 0, 0),
            "fsmount": (BAD, 0, 0),
            "fspick": (BAD, BAD, 0),
            "open_tree": (BAD, BAD, 0),
            "open_tree_attr": (BAD, BAD, 0, 0, 0),
            "move_mount": (BAD, BAD, BAD, BAD, 0),
            "mount_setattr": (BAD, BAD, 0, 0, 0),
            "unshare": (1,),
            "setns": (BAD, 0),
        },
    ),
    row(
        "S2",
        "other processes",
        "EPERM",
        {
            "ptrace": (0xFFFF, 0, 0, 0),
            "process_vm_readv": (0, 0, 0, 0, 0, 9),
            "process_vm_writev": (0, 0, 0, 0, 0, 9),
            "process_madvise": (BAD, 0, 0, 0, 0),
            "process_mrelease": (BAD, 0),
            "kcmp": (0, 0, 99, 0, 0),
            "pidfd_getfd": (BAD, 0, 0),
        },
    ),
    row(
        "S3",
        "kernel machinery",
        "EPERM",
        {
            "bpf": (0xFFFF, 0, 0),
            "perf_event_open": (BAD, 0, BAD, BAD, 0),
            "userfaultfd": (0xFFFF,),
            "fanotify_init": (0xFFFFFF, 0),
            "fanotify_mark": (BAD, 0, 0, BAD, 0),
            "name_to_handle_at": (BAD, BAD, 0, 0, 0),
            "open_by_handle_at": (BAD, BAD, 0),
            "quotactl": (0xFFFFFFFF, 0, 0, 0),
            "quotactl_fd": (BAD, 0xFFFFFFFF, 0, 0),
            "lookup_dcookie": (0, 0, 0),
            "modify_ldt": (99, 0, 0),
            "mbind": (1, 0, 0, 0, 0, 0),
            "set_mempolicy": (99, 0, 0),
            "set_mempolicy_home_node": (1, 0, 0, 9),
            "move_pages": (0, 0, 0, 0, 0, 0xFFFF),
            "migrate_pages": (BAD, 0, 0, 0),
        },
    ),
    row(
        "S4",
        "the machine's own affairs",
        "EPERM",
        {
            "reboot": (0, 0, 0, 0),
            "kexec_load": (0, 999, 0, 0),
            "kexec_file_load": (BAD, BAD, 0, 0, 0xFFFF),
            "init_module": (0, 0, BAD),
            "finit_module": (BAD, BAD, 0xFFFF),
            "delete_module": (BAD, 0),
            "swapon": (BAD, 0xFFFFFFF),
            "swapoff": (BAD,),
            "syslog": (99, 0, 0),
            "iopl": (99,),
            "ioperm": (BAD, 1, 1),
            "clock_settime": (99, 0),
            "clock_adjtime": (99, 0),
            "adjtimex": (BAD,),
            "settimeofday": (BAD, 0),
            "sethostname": (BAD, BAD),
            "setdomainname": (BAD, BAD),
        },
    ),
    Probe(
        "S4b",
        "the machine's own affairs, harmful outside: acct, vhangup",
        f"print(syscall({NUMBERS['acct']}, 0), syscall({NUMBERS['vhangup']}))",
        held="EPERM EPERM",
        outside=Outside.NOWHERE,
        no_control="they would end the host's accounting, or hang up a terminal",
        wall="system call filter",
    ),
    row(
        "S5",
        "keyrings, rings, structures that cannot be looked into",
        "ENOSYS",
        {
            "keyctl": (9999, 0, 0),
            "add_key": (BAD, BAD, 0, 0, 0),
            "request_key": (BAD, BAD, 0, 0),
            "io_uring_setup": (0, BAD),
            "io_uring_enter": (BAD, 0, 0, 0, 0, 0),
            "io_uring_register": (BAD, 0, 0, 0),
            "clone3": (0, 0),
            "openat2": (BAD, BAD, 0, 0),
            "io_setup": (0, BAD),
            "io_submit": (0, 0, 0),
        },
    ),
    row(
        "S6",
        "sockets",
        "EPERM",
        {
            "bind": (BAD, 0, 0),
            "connect": (BAD, 0, 0),
            "listen": (BAD, 0),
            "accept": (BAD, 0, 0),
            "accept4": (BAD, 0, 0, 0),
        },
    ),
    facts(
        "S7",
        "every number that the profile does not name, and numbers that are none",
        NAMED + "unknown = [n for n in [*range(335, 424), *range(470, 1100), 0x3fffffff]\n"
        "           if n not in number.values()]\n"
        "print({syscall(n, 0, 0, 0, 0, 0, 0) for n in unknown})",
        held=r"\{'ENOSYS'\}",
    ),
    facts(
        "S8",
        "high halves of arguments are the kernel's to ignore, and the filter's",
        NAMED + "high = 1 << 32\n"
        "print(syscall(number['clone'], 0x10000000 | high | 17, 0, 0, 0, 0),\n"
        "      syscall(number['clone'], 0x20000 | high | 17, 0, 0, 0, 0),\n"
        "      syscall(number['socketpair'], 1 | high, 2 | high, 0, 0),\n"
        "      syscall(number['socketpair'], 2, 1 | high, 0, 0),\n"
        "      syscall(number['personality'], 0x400000 | high),\n"
        "      syscall(number['ioctl'], 0, 0x5412 | high, 0),\n"
        "      syscall(number['fcntl'], 0, 1024 | high, 0),\n"
        "      syscall(number['seccomp'], 1, 8 | high, 0),\n"
        "      syscall(number['fchmod'], 99, 0o4755 | high))",
        held="EPERM EPERM EAFNOSUPPORT EAFNOSUPPORT EPERM EPERM EPERM EPERM EPERM",
    ),
    facts(
        "S9",
        "ioctl: typing into a terminal, and its relatives; others pass",
        NAMED + "for request in (0x5412, 0x541c, 0x5423, 0x5401):\n"
        "    print(syscall(number['ioctl'], 0, request, 0))",
        held="EPERM\nEPERM\nEPERM\nENOTTY",
        succeeds=r"ENOTTY.*",
    ),
    facts(
        "S10",
        "fcntl: leases, directory notices; others pass",
        NAMED + "handle = os.open(at['tmp'], os.O_RDONLY)\n"
        "for command in (1024, 1026, 1): print(syscall(number['fcntl'], handle, command, 1))",
        held="EPERM\nEPERM\n1",
        succeeds=r"\w+\n0\n\d",
    ),
    facts(
        "S11",
        "answering system calls of others (a seccomp listener)",
        NAMED + "import struct, ctypes\n"
        "allow = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0x7fff0000))\n"
        "program = struct.pack('HxxxxxxQ', 1, ctypes.addressof(allow))\n"
        "program = ctypes.create_string_buffer(program)\n"
        "ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)\n"
        "address = ctypes.addressof(program)\n"
        "print(syscall(number['seccomp'], 1, 8, address),\n"
        "      syscall(number['seccomp'], 1, 0, address))",
        held="EPERM 0",
        succeeds=r"\d+ 0",
    ),
    facts(
        "S12",
        "threads, processes, pipes, pairs of sockets, timers are unhindered",
        """
        import socket, threading, subprocess, time, select, signal
        seen = []
        threads = [threading.Thread(target=seen.append, args=(n,)) for n in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        one, other = socket.socketpair(); one.send(b'hello')
        print(sorted(seen), other.recv(9), subprocess.check_output(['echo', 'child']))
        print(select.select([other], [], [], 0)[0], time.sleep(0.001), os.getrandom(4)[:0])
        """,
        held=r"\[0, 1, 2, 3, 4, 5, 6, 7\] b'hello' b'child\\n'\n\[\] None b''",
        succeeds=r"\[0, 1.*",
    ),
    facts(
        "S13",
        "curl and jq start, bash makes pipes and jobs",
        """
        print(shell('curl --version | head -c 4'))
        print(shell('for i in 1 2 3; do echo $i & done | sort | tr -d "\\n"; cat <(echo x)'))
        """,
        held=r"curl\[0\]\n123x\n\[0\]",
        succeeds=r"curl\[0\]\n123.*",
    ),
)
