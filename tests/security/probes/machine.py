"""L. The engine, the clock, keys, and whether the limits are those that are claimed."""

from __future__ import annotations

from tests.security.probe import Outside, Probe

PROBES = (
    Probe(
        "L95",
        "the engine's socket",
        """
        for path in ('/var/run/docker.sock', '/run/docker.sock', '/run/containerd/containerd.sock',
                     '/run/podman/podman.sock'):
            print(tried(os.stat, path))
        print(shell('curl -s -m2 --unix-socket /var/run/docker.sock http://x/version')[-4:])
        """,
        held=r"((ENOENT|EACCES)\n){4}.*\[7\]",
        outside=Outside.NOWHERE,
        no_control="not every machine has an engine",
        wall="not mounted, and no socket to reach it",
    ),
    Probe(
        "L98",
        "setting the clock",
        """
        print(shell('date -s "2001-01-01" >/dev/null 2>&1'))
        print(syscall(227, 0, None), syscall(164, None, None), syscall(305, 0, None),
              syscall(159, None))
        """,
        held=r"\[1\]\nEPERM EPERM EPERM EPERM",
        succeeds=r"\[1\]\nEFAULT \S+ EFAULT EFAULT",
        outside=Outside.NAMESPACES,
        wall="system call filter",
    ),
    Probe(
        "L99",
        "keys of the session that started the executor",
        """
        print(syscall(250, 0, -3 & 0xffffffffffffffff, 0), syscall(250, 6, -4 & 0xffffffffffffffff))
        print(tried(lambda: open('/proc/keys').read(1)) in ('ENOENT', 'EACCES', "''", 'EPERM'))
        """,
        held=r"ENOSYS ENOSYS\nTrue",
        succeeds=r"\d+ .*",
        wall="system call filter; another session keyring",
    ),
    Probe(
        "L100",
        "whether the limits inside are those of the policy",
        """
        import resource
        names = ('FSIZE', 'NOFILE', 'CORE', 'MEMLOCK', 'MSGQUEUE', 'NICE', 'RTPRIO')
        print(*(resource.getrlimit(getattr(resource, 'RLIMIT_' + name))[1] for name in names))
        print(os.nice(0) >= 10, oct(os.umask(0)))
        """,
        held=r"16777216 256 [01] 65536 0 0 0\nTrue 0o77",
        outside=Outside.NOWHERE,
        no_control="a fact about the sandbox",
        wall="rlimits",
    ),
)
