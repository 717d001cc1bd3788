"""H. Can a privilege be gained, or left on the host for later?"""

from __future__ import annotations

import signal

from tests.security.probe import Outside, Probe

PROBES = (
    Probe(
        "H59",
        "new namespaces: unshare, clone, clone3, setns to one's own",
        """
        import ctypes
        user, mount, net, pid = 0x10000000, 0x20000, 0x40000000, 0x20000000
        for flags in (user, user | mount | net | pid, mount, net): print(syscall(272, flags))
        for flags in (user | 17, user | 17 | (1 << 40), net | 17):
            made = syscall(56, flags, 0, 0, 0, 0)
            if made == '0': os._exit(0)
            print(made)
        arguments = (ctypes.c_ulong * 11)(user, 0, 0, 0, 17)
        made = syscall(435, ctypes.addressof(arguments), 88)
        if made == '0': os._exit(0)
        print(made)
        for name in ('user', 'net', 'mnt'):
            print(syscall(308, os.open('/proc/self/ns/' + name, 0), 0))
        """,
        held=r"(EPERM\n){7}ENOSYS\n(EPERM\n?){3}",
        succeeds=r"0\n.*",
        outside=Outside.NAMESPACES,
        wall="system call filter, and no user namespace is allowed",
    ),
    Probe(
        "H60",
        "becoming root: setuid, setresuid, setgroups, capset, ambient capabilities",
        """
        import ctypes, struct
        print(tried(os.setuid, 0), tried(os.setgid, 0), tried(os.setresuid, 0, 0, 0),
              tried(os.setgroups, [0]), tried(os.setreuid, 0, 0))
        head = struct.pack('Ii', 0x20080522, 0); every = struct.pack('6I', *[0xffffffff] * 6)
        print(syscall(126, head, every), syscall(157, 47, 2, 21, 0, 0))
        print(sorted(set(os.getresuid() + os.getresgid())) != [0])
        """,
        held=r"(EPERM|EINVAL)( (EPERM|EINVAL)){4}\nEPERM EPERM\nTrue",
        succeeds=r"None None None \S+ None\n.*",
        outside=Outside.NAMESPACES,
        wall="no capability, one mapped id",
    ),
    Probe(
        "H61",
        "what is left of privilege: capabilities, no-new-privileges, seccomp, securebits",
        """
        import ctypes
        status = dict(line.split(':\\t', 1) for line in open('/proc/self/status') if ':\\t' in line)
        names = ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb')
        caps = {int(status[name], 16) for name in names}
        print(caps, status['NoNewPrivs'].strip(), status['Seccomp'].strip(),
              '0' in status['Uid'].split() + status['Gid'].split())
        """,
        held=r"\{0\} 1 2 False",
        succeeds=r"\{.*\} 0 0 True",
        outside=Outside.ROOT,
        wall="dropped, and read back by the cell",
    ),
    Probe(
        "H62",
        "chroot, pivot_root, umount, remount, the new mount calls",
        """
        print(tried(os.chroot, at['tmp']), syscall(155, b'.', b'.'), syscall(166, b'/proc', 2))
        print(syscall(165, b'none', b'/', b'', 32 | 4096, None),
              syscall(165, None, b'/tmp', None, 32, 0))
        print(syscall(428, -100, b'/', 1), syscall(429, -1, b'', -100, b'/', 0),
              syscall(430, b'tmpfs', 0), syscall(442, -1, b'', 0, None, 0))
        """,
        held=r"EPERM EPERM EPERM\nEPERM EPERM\nEPERM EPERM EPERM EPERM",
        succeeds=r"None .*",
        outside=Outside.NAMESPACES,
        wall="system call filter",
    ),
    *(
        Probe(
            f"H63{letter}",
            f"a call of another architecture: {name}",
            f"""
        import ctypes, mmap
        code = bytes.fromhex('53b8{number:02x}000000' '31db31c931d2' 'cd80' '5bc3')
        page = mmap.mmap(-1, 4096, prot=7); page.write(code)
        address = ctypes.addressof(ctypes.c_char.from_buffer(page))
        print(ctypes.CFUNCTYPE(ctypes.c_int)(address)())
        """,
            held="",
            ended_by=signal.SIGSYS,
            succeeds=r"-?\d+",
            wall="system call filter: architecture",
        )
        for letter, name, number in (
            ("", "int 0x80, getpid", 20),
            ("b", "int 0x80, mount", 21),
            ("c", "int 0x80, socketcall", 102),
        )
    ),
    *(
        Probe(
            f"H63{letter}",
            f"a call by its x32 number: {name}",
            f"print(syscall({0x40000000 | number}, 0, 0, 0))",
            held="",
            ended_by=signal.SIGSYS,
            outside=Outside.NOWHERE,
            no_control="most kernels are built without x32: it is ENOSYS outside",
            wall="system call filter: x32",
        )
        for letter, name, number in (("d", "socket", 41), ("e", "mount", 165), ("f", "ptrace", 521))
    ),
    Probe(
        "H64",
        "kernel machinery: bpf, perf, userfaultfd, keyrings",
        """
        print(syscall(321, 0, None, 0), syscall(298, None, 0, -1, -1, 0), syscall(323, 0),
              syscall(323, 1))
        print(syscall(250, 0, -3 & 0xffffffff, 0), syscall(248, b'user', b'x', b'x', 1, -3),
              syscall(249, b'user', b'x', None, 0))
        """,
        held=r"(EPERM ?){4}\n(ENOSYS ?){3}",
        succeeds=r".*EFAULT.*",
        outside=Outside.ROOT,
        wall="system call filter",
    ),
    Probe(
        "H65",
        "switching off address randomisation, making all memory executable",
        """
        print(syscall(135, 0x40000), syscall(135, 0x400000), syscall(135, 0x40000 | 1 << 32))
        print(syscall(135, 0xffffffff))
        """,
        held=r"EPERM EPERM EPERM\n0",
        succeeds=r"0 \d+ \d+\n\d+",
        wall="system call filter: personality",
    ),
    Probe(
        "H66",
        "running a file that the hook wrote: from /tmp, from memory",
        """
        import shutil
        target = at['tmp'] + '/program'
        shutil.copyfile('/bin/cat', target); os.chmod(target, 0o755)
        print(tried(os.execv, target, ['cat', '/dev/null']) if at['inside'] else
              'ran' if os.spawnv(0, target, ['cat', '/dev/null']) == 0 else 'no')
        os.unlink(target)
        """,
        held="EACCES",
        succeeds="ran",
        wall="noexec",
    ),
    Probe(
        "H66b",
        "what a program in memory gains: nothing",
        """
        handle = os.memfd_create('x')
        with open('/bin/cat', 'rb') as cat: os.write(handle, cat.read())
        os.execve(handle, ['cat', '/proc/self/status'], {})
        """,
        held=r".*CapEff:\s0+\n.*NoNewPrivs:\s1\nSeccomp:\s2\n.*",
        succeeds=r".*CapEff:\s0*[1-9a-f][0-9a-f]*\n.*NoNewPrivs:\s0\n.*",
        outside=Outside.ROOT,
        wall="nothing that an exec could give back",
    ),
    Probe(
        "H67",
        "a setuid or setgid file for the host, by every call that takes a mode",
        """
        import ctypes, shutil
        name = at['out'] + '/sticky' + os.environ.get('PAIR', '')
        path, here = name.encode(), -100
        def bits():
            found = oct(os.lstat(name).st_mode & 0o6000) if os.path.lexists(name) else 'none'
            (os.rmdir if os.path.isdir(name) else os.unlink)(name) if found != 'none' else None
            return found
        how = (ctypes.c_ulong * 3)(0o101, 0o4755, 0)
        os.umask(0)
        for mode in (0o4755, 0o2755, 0o6777):
            for number, *arguments in (
                (2, path, 0o101, mode), (2, path, 0o100, mode | 1 << 32), (85, path, mode),
                (257, here, path, 0o101, mode), (437, here, path, ctypes.addressof(how), 24),
                (133, path, 0o100000 | mode, 0), (259, here, path, 0o100000 | mode, 0),
                (83, path, mode), (258, here, path, mode),
            ):
                syscall(number, *arguments); print(bits())
            for number, *arguments in (
                (90, path, mode), (268, here, path, mode), (452, here, path, mode, 0),
                (90, path, mode | 1 << 63), (91, 'fd', mode), (452, 'fd', b'', mode, 0x1000),
            ):
                handle = os.open(name, os.O_CREAT | os.O_WRONLY, 0o755)
                syscall(number, *(handle if word == 'fd' else word for word in arguments))
                os.close(handle); print(bits())
        """,
        held=r"((none|0o0)\n?)+",
        succeeds=r".*0o4000.*0o2000.*0o6000.*",
        wall="system call filter: modes",
    ),
    Probe(
        "H67b",
        "a temporary file without a name, given one with its bit",
        """
        name = at['out'] + '/temporary' + os.environ.get('PAIR', '')
        try:
            handle = os.open(at['out'], os.O_TMPFILE | os.O_WRONLY, 0o4755)
            syscall(265, -100, f'/proc/self/fd/{handle}'.encode(), -100, name.encode(), 0x400)
            print(oct(os.stat(name).st_mode & 0o6000)); os.unlink(name)
        except OSError as error: print(error.errno)
        """,
        held="1",
        succeeds="0o4000",
        wall="system call filter: modes",
    ),
    Probe(
        "H67c",
        "capabilities on a file, by its extended attribute; trusted attributes",
        """
        import struct
        name = at['out'] + '/capable' + os.environ.get('PAIR', '')
        open(name, 'x').close()
        value = struct.pack('<5I', 0x02000001, 0xffffffff, 0, 0xffffffff, 0)
        print(tried(os.setxattr, name, 'security.capability', value))
        print(tried(os.setxattr, name, 'security.capability', struct.pack('<6I', 0x03000001,
                    0xffffffff, 0, 0xffffffff, 0, 0)))
        print(tried(os.setxattr, name, 'trusted.x', b'x'))
        os.unlink(name)
        """,
        held=r"EPERM\nEPERM\nEPERM",
        succeeds=r"None\n\S+\nNone",
        outside=Outside.ROOT,
        wall="no capability",
    ),
    Probe(
        "H67d",
        "giving a file away, and a set of bits by copying a setuid program",
        """
        name = at['out'] + '/given' + os.environ.get('PAIR', '')
        open(name, 'x').close()
        print(tried(os.chown, name, 0, 0), tried(os.chown, name, 12345, -1))
        os.unlink(name)
        shell(f'cp --preserve=all /usr/bin/passwd {name} || cp -p /usr/bin/su {name}')
        print(oct(os.stat(name).st_mode & 0o6000) if os.path.exists(name) else 'none')
        if os.path.exists(name): os.unlink(name)
        """,
        held=r"(EPERM|EINVAL) (EPERM|EINVAL)\n(none|0o0)",
        succeeds=r"None None\n0o[46]000",
        outside=Outside.ROOT,
        wall="no capability; system call filter: modes",
    ),
)
