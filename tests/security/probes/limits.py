"""I. Is everything that can be used up bounded? (what ends a run is in ``test_exhaustion``)"""

from __future__ import annotations

from tests.security.probe import Outside, Probe

PROBES = (
    Probe(
        "I70",
        "locking memory, huge pages",
        """
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        integers = (ctypes.c_int,) * 3
        libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *integers, ctypes.c_long)
        size = 1 << 20
        place = libc.mmap(None, size, 3, 0x22, -1, 0)
        print(libc.mlock(ctypes.c_void_p(place), ctypes.c_size_t(size)))
        print(libc.mmap(None, 2 << 20, 3, 0x40022, -1, 0) == ctypes.c_void_p(-1).value)
        """,
        held=r"-1\nTrue",
        succeeds=r"0\n\S+",
        wall="RLIMIT_MEMLOCK; no huge pages",
    ),
    Probe(
        "I71",
        "filling /tmp: bytes, inodes",
        """
        name, written = '/tmp/fill', 0
        with open(name, 'wb', buffering=0) as file:
            try:
                while written < 64 << 20: written += file.write(b'x' * 65536)
            except OSError as error: print(error.errno)
        os.unlink(name)
        made = 0
        try:
            for made in range(100_000): os.mkdir(f'/tmp/d{made}')
        except OSError as error: print(error.errno)
        for number in range(made): os.rmdir(f'/tmp/d{number}')
        print(written <= 16 << 20, made <= 4096)
        """,
        held=r"(28|27)\n28\nTrue True",
        outside=Outside.NOWHERE,
        no_control="the host's /tmp is not to be filled",
        wall="a tmpfs with a size and a count of inodes",
    ),
    Probe(
        "I72",
        "shared memory and message queues: /dev/shm, System V, POSIX",
        """
        print(tried(lambda: open('/dev/shm/x', 'x').close()))
        print(syscall(240, b'hook', 0o102, 0o600, None))
        """,
        held=r"(ENOENT|EACCES|EROFS)\n(EMFILE|EACCES|ENOSPC|ENOSYS)",
        outside=Outside.NOWHERE,
        no_control="the host's are not to be used",
        wall="not mounted; RLIMIT_MSGQUEUE 0",
    ),
    Probe(
        "I74",
        "a sparse file of 1 TB in the grant",
        """
        name = at['out'] + '/sparse' + os.environ.get('PAIR', '')
        import signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with open(name, 'wb') as file: print(tried(os.truncate, file.fileno(), 1 << 40))
        os.unlink(name)
        """,
        held=r"EFBIG",
        succeeds="None",
        wall="RLIMIT_FSIZE",
    ),
    Probe(
        "I74b",
        "raising one's limits again",
        """
        import resource
        for limit in (resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_CORE,
                      resource.RLIMIT_MEMLOCK, resource.RLIMIT_MSGQUEUE):
            soft, hard = resource.getrlimit(limit)
            try: resource.setrlimit(limit, (hard + 1, hard + 1)); print('raised')
            except (OSError, ValueError, OverflowError): print('no')
        """,
        held=r"(no\n?){5}",
        outside=Outside.NOWHERE,
        no_control="root's limits are often infinite, which has no more",
        wall="hard limits",
    ),
    Probe(
        "I78",
        "ten thousand descriptors, pipes with large buffers",
        """
        import fcntl
        ends = []
        try:
            for _ in range(10_000): ends += os.pipe()
        except OSError as error: print(error.errno)
        print(len(ends) <= 256)
        """,
        held=r"24\nTrue",
        succeeds=r"(24\n)?False",
        wall="RLIMIT_NOFILE",
    ),
    Probe(
        "I79",
        "what all sandboxes share: asynchronous io contexts, terminals",
        """
        import ctypes
        seen = []
        for _ in range(4):
            context = ctypes.c_ulong(0)
            seen.append(syscall(206, 16, ctypes.addressof(context)))
        print(*seen)
        print(tried(os.open, '/dev/ptmx', os.O_RDWR))
        """,
        held=r"(ENOSYS ?)+\n(ENOENT|EACCES|ENODEV|EIO|ENXIO|EPERM)",
        succeeds=r"(0 ?)+\n\d+",
        wall="system call filter; no terminals",
    ),
)
