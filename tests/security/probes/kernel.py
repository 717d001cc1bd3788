"""D. What of the kernel can be seen or set?"""

from __future__ import annotations

from tests.security.probe import Outside, Probe

PROBES = (
    Probe(
        "D31",
        "setting core_pattern, and other sysctls",
        "for name in at['sysctls']: print(tried(lambda: open('/proc/sys/' + name, 'r+').close()))",
        held=r"((ENOENT|EROFS|EACCES)\n?)+",
        succeeds=r"None",
        outside=Outside.NAMESPACES,
        wall="a /proc without sys, or read-only; no uid 0",
    ),
    Probe(
        "D32",
        "sysrq, uevent_helper, release_agent, cgroup files",
        """
        names = ['/proc/sysrq-trigger', '/sys/kernel/uevent_helper', '/sys/fs/cgroup/cgroup.procs']
        for top in ('/sys/fs/cgroup', '/sys'):
            names += [os.path.join(place, file) for place, _, files in os.walk(top)
                      for file in files if file in ('release_agent', 'cgroup.procs', 'tasks')]
        print(sorted({tried(os.open, name, os.O_WRONLY) for name in names}))
        """,
        held=r"\[('(ENOENT|EACCES|EROFS)'(, )?)+\]",
        succeeds=r".*'\d+'.*",
        outside=Outside.ROOT,
        wall="no /sys, a masked /proc",
    ),
    Probe(
        "D33",
        "kcore, keys, kallsyms, timer_list, interrupts, sched_debug, kmsg, modules, …",
        """
        names = ('kcore', 'keys', 'key-users', 'kallsyms', 'timer_list', 'interrupts', 'kmsg',
                 'sched_debug', 'modules', 'iomem', 'ioports', 'diskstats', 'partitions', 'locks',
                 'swaps', 'config.gz', 'acpi', 'scsi', 'zoneinfo', 'slabinfo', 'vmallocinfo',
                 'pagetypeinfo')
        def size(name):
            path = '/proc/' + name
            return len(os.listdir(path) if os.path.isdir(path) else open(path, 'rb').read(9))
        print(*sorted({tried(size, name) for name in names}))
        """,
        held=r"((ENOENT|EACCES|EPERM|0) ?)+",
        succeeds=r".*[1-9].*",
        outside=Outside.ROOT,
        wall="a /proc of processes only, or masked",
    ),
    Probe(
        "D34",
        "how many processes /proc shows",
        """
        pids = [int(name) for name in os.listdir('/proc') if name.isdigit()]
        print('few' if len(pids) < 8 else 'many')
        """,
        held="few",
        succeeds="many",
        wall="process-id namespace",
    ),
    Probe(
        "D35",
        "the environment, descriptors and memory of PID 1",
        """
        who = 1 if at['inside'] else os.getpid()
        for name in ('environ', 'fd', 'mem', 'maps', 'cwd', 'root', 'exe', 'auxv', 'syscall',
                     'stack', 'fdinfo', 'map_files', 'task/1/mem', 'io', 'personality'):
            path = f'/proc/{who}/{name}'
            print(tried(os.listdir if name in ('fd', 'fdinfo', 'map_files') else
                        (lambda path: open(path, 'rb').read(9)), path)[:16])
        """,
        held=r"((EACCES|EPERM|ENOENT|EISDIR)\n?)+",
        succeeds=r".*b'.*",
        outside=Outside.ROOT,
        wall="the cell is not dumpable",
    ),
    Probe(
        "D36",
        "escaping the OOM killer",
        """
        for value in ('-1000', '-1'):
            print(tried(lambda: open('/proc/self/oom_score_adj', 'w').write(value)))
        """,
        held=r"(EACCES|EPERM)\n(EACCES|EPERM)",
        succeeds=r"5\n2",
        outside=Outside.ROOT,
        wall="no capability",
    ),
    Probe(
        "D37",
        "which machine this is: command line, version, machine id, host name",
        """
        seen = []
        for path, value in at['fingerprints'].items():
            try:
                with open(path) as file:
                    if file.read().strip() == value: seen.append(path)
            except OSError: pass
        if os.uname().nodename == at['hostname']: seen.append('uname')
        print(seen)
        """,
        held=r"\[\]",
        succeeds=r"\['/.*",
        wall="masked, and a host name of its own",
    ),
    Probe(
        "D38",
        "the machine's firmware, product names, power meters",
        """
        names = ('class/dmi', 'firmware', 'devices/virtual/powercap', 'class/net', 'block')
        print(*(tried(os.listdir, '/sys/' + name) for name in names))
        """,
        held=r"(ENOENT ?)+",
        succeeds=r".*\[.*",
        wall="no /sys",
    ),
    Probe(
        "D39",
        "mounting proc, sysfs, cgroup, overlay, tmpfs, bpf, devpts",
        """
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        for kind in (b'tmpfs', b'proc', b'sysfs', b'cgroup2', b'bpf', b'devpts', b'overlay'):
            failed = libc.mount(kind, at['mount_at'].encode(), kind, 0, None)
            print('mounted' if not failed else ctypes.get_errno())
        """,
        held=r"(1\n?){7}",
        succeeds=r"mounted\n.*",
        outside=Outside.NAMESPACES,
        wall="system call filter: mount",
    ),
)
