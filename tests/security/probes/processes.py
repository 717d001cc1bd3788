"""G. Can other processes be seen, stopped, steered or robbed?"""

from __future__ import annotations

from tests.security.probe import Outside, Probe

NEIGHBOUR = """
        import os, time
        victim = 1 if at['inside'] else os.fork()
        if victim == 0: time.sleep(30); os._exit(0)
"""
"""PID 1 inside; outside a process of one's own."""

PROBES = (
    Probe(
        "G52",
        "signalling every process of the host",
        """
        own = {int(name) for name in os.listdir('/proc') if name.isdigit()}
        print(sorted({tried(os.kill, pid, 0) for pid in at['host_pids'] if pid not in own
                      or not at['inside']}))
        """,
        held=r"\['ESRCH'\]",
        succeeds=r".*'None'.*",
        wall="process-id namespace",
    ),
    Probe(
        "G52b",
        "ending or stopping PID 1, which reports",
        """
        import signal
        for number in range(1, 65):
            if number not in (32, 33): tried(os.kill, 1, number)
        print('sent')
        """,
        held="sent",
        outside=Outside.NOWHERE,
        no_control="PID 1 of a machine is not to be signalled; the run's report is the proof",
        wall="the kernel protects a namespace's first process",
    ),
    Probe(
        "G53",
        "ptrace: PID 1, a child, oneself",
        NEIGHBOUR
        + """
        attach, seize, traceme = 16, 0x4206, 0
        print(syscall(101, attach, victim, 0, 0), syscall(101, seize, victim, 0, 0))
        print(syscall(101, traceme, 0, 0, 0))
        """,
        held=r"EPERM EPERM\nEPERM",
        succeeds=r"0 EPERM\n0",
        wall="system call filter: ptrace",
    ),
    Probe(
        "G54",
        "reading memory and descriptors of PID 1",
        NEIGHBOUR
        + """
        import ctypes
        handle = os.pidfd_open(victim)
        print(syscall(438, handle, 0, 0))
        here, there = ctypes.create_string_buffer(16), ctypes.create_string_buffer(16)
        one = (ctypes.c_ulong * 2)(ctypes.addressof(here), 16)
        two = (ctypes.c_ulong * 2)(ctypes.addressof(there), 16)
        for call in (310, 311):
            print(syscall(call, victim, ctypes.addressof(one), 1, ctypes.addressof(two), 1, 0))
        print(syscall(312, os.getpid(), victim, 0, 0, 0))
        """,
        held=r"EPERM\nEPERM\nEPERM\nEPERM",
        succeeds=r"\d+\n16\n16\n\d+",
        wall="system call filter",
    ),
    Probe(
        "G55",
        "process groups, terminals, sessions of others",
        """
        import signal
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        print(tried(os.tcsetpgrp, 0, os.getpgrp()), tried(os.setpgid, 1, 1), tried(os.getsid, 1))
        print(tried(os.killpg, 1, 0) if at['inside'] else '')
        """,
        held=r"ENOTTY (ESRCH|EPERM) \d+\n\S*",
        outside=Outside.NOWHERE,
        no_control="tests have no terminal",
        wall="its own session",
    ),
    Probe(
        "G56",
        "more than one's share: nice -20, real-time scheduling and io",
        """
        print(tried(os.setpriority, os.PRIO_PROCESS, 0, -20))
        print(tried(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(10)))
        print(syscall(251, 1, 0, (1 << 13) | 0))
        """,
        held=r"(EPERM|EACCES)\nEPERM\nEPERM",
        succeeds=r"None\n(None|EPERM|EINVAL)\n0",
        outside=Outside.ROOT,
        wall="no capability, RLIMIT_NICE 0",
    ),
    Probe(
        "G56b",
        "slowing PID 1 down: limits, nice, affinity, scheduler, io class",
        NEIGHBOUR
        + """
        import resource
        group = os.getpgid(victim)
        print(tried(resource.prlimit, victim, resource.RLIMIT_NOFILE, (9, 9)))
        print(tried(os.setpriority, os.PRIO_PROCESS, victim, 19))
        print(tried(os.setpriority, os.PRIO_PGRP, group, 19))
        print(tried(os.setpriority, os.PRIO_USER, os.getuid(), 19) if at['inside'] else 'None')
        print(tried(os.sched_setaffinity, victim, {min(os.sched_getaffinity(0))}))
        print(tried(os.sched_setscheduler, victim, os.SCHED_IDLE, os.sched_param(0)))
        print(syscall(251, 1, victim, 3 << 13), syscall(251, 2, group, 3 << 13))
        print(tried(lambda: open(f'/proc/{victim}/oom_score_adj', 'w').write('1000')))
        """,
        held=r"(EPERM\n){6}EPERM (EPERM|ESRCH)\n(EACCES|EPERM|ENOENT)",
        succeeds=r"\(.*\)\n(None\n){5}0 0\n4",
        wall="system call filter: not of the cell",
    ),
    Probe(
        "G56c",
        "the same with other spellings: high bits in an argument, its thread",
        """
        high = 1 << 32
        print(syscall(302, 1 | high, 7, 0, 0), syscall(141, 0, 1 | high, 19),
              syscall(203, 1 | high, 8, b'\\1' + b'\\0' * 7), syscall(251, 1, 1 | high, 3 << 13))
        print(syscall(141, high, 1, 19), syscall(251, 1 | high, 1 | high, 3 << 13))
        """,
        held=r"EPERM EPERM EPERM EPERM\nEPERM EPERM",
        outside=Outside.NOWHERE,
        no_control="PID 1 of a machine is not to be slowed down; G56b has one",
        wall="system call filter: low halves are compared",
    ),
)
