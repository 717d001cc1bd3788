"""B. Is there anything of the host's files, and can it be written?"""

from __future__ import annotations

from tests.security.probe import Outside, Probe

READ_ONLY = r"((EROFS|EACCES|EPERM|ENOENT|EXDEV|EBUSY|ENOTDIR)\n?)+"

PROBES = (
    Probe(
        "B13",
        "reading /etc/shadow, keys of users, a secret beside the workspace",
        """
        for path in at['secrets']: print(tried(lambda: open(path).read()))
        """,
        held=r"((ENOENT|EACCES)\n?)+",
        succeeds=r"'.*canary'",
        wall="they are not mounted",
    ),
    Probe(
        "B14",
        "the host's /etc/hostname by way of <workspace>/../..",
        """
        text = open(at['workspace'] + '/..' * 20 + '/etc/hostname').read().strip()
        print('the host' if text == at['hostname'] else 'own')
        """,
        held="ENOENT|own",
        succeeds="the host",
        wall="the root is another",
    ),
    Probe(
        "B15",
        "making files in system directories",
        """
        for place in at['system']: print(tried(lambda: open(place + '/probe', 'x').close()))
        """,
        held=READ_ONLY,
        succeeds=r"(None\n?)+",
        wall="read-only mounts",
    ),
    Probe(
        "B15b",
        "any place at all that can be written, other than /tmp and the grant",
        r"""
        places, seen = [], []
        for line in open('/proc/self/mountinfo'):
            places.append(line.split(' ')[4])
        for top in ('/dev', '/run', '/var', '/etc'):
            places += [directory for directory, _, _ in os.walk(top)]
        for place in sorted(set(places)):
            name = place.replace('\\040', ' ') + '/probe'
            if tried(lambda: open(name, 'x').close()) == 'None':
                os.unlink(name); seen.append(place)
        print([place for place in seen if place not in ('/tmp', at['out'])])
        """,
        held=r"\[\]",
        succeeds=r"\['.*",
        outside=Outside.NAMESPACES,
        wall="read-only mounts",
    ),
    Probe(
        "B16",
        "changing the workspace in every way that there is",
        """
        one, two = at['workspace'] + '/data', at['workspace'] + '/probe'
        print(tried(lambda: open(one, 'a').close()))
        print(tried(lambda: open(two, 'x').close()))
        for call, *words in (
            (os.truncate, one, 1), (os.chmod, one, 0o644), (os.utime, one),
            (os.setxattr, one, 'user.x', b'x'), (os.mkdir, two + 'd'), (os.mkfifo, two + 'f'),
            (os.symlink, '/', two + 'l'), (os.link, one, two + 'h'),
            (os.rename, one, two + 'r'),
            (os.rename, two + 'r', one), (os.unlink, one), (os.rmdir, at['workspace'] + '/sub'),
        ): print(tried(call, *words))
        """,
        held=READ_ONLY,
        succeeds=r"(None\n?)+",
        wall="read-only mount",
    ),
    Probe(
        "B17",
        "what is in /home, /root, /opt, /mnt, /srv, /media, /boot, /sys",
        """
        for place in at['private_places']:
            print(place, tried(lambda: sorted(os.listdir(place))))
        """,
        held=r"(\S+ (ENOENT|EACCES|\[\])\n?)+",
        succeeds=r"(\S+ \[.+\]\n?)+",
        wall="they are not mounted",
    ),
    Probe(
        "B17b",
        "what services have in /run and /var/lib",
        """
        seen = {name for place in at['services'] if os.path.isdir(place)
                for name in os.listdir(place)}
        print(sorted(seen & set(at['service_names'])))
        """,
        held=r"\[\]",
        succeeds=r"\['.+",
        wall="they are not mounted",
    ),
    Probe(
        "B18",
        "the executor's own source, state and lock files",
        """
        for place in at['own']: print(tried(lambda: sorted(os.listdir(place))))
        """,
        held=r"((ENOENT|EACCES)\n?)+",
        succeeds=r"(\[.*\]\n?)+",
        wall="they are not mounted",
    ),
    Probe(
        "B19",
        "host paths in the tables of mounts",
        """
        seen = [name for table in ('mountinfo', 'mounts', 'mountstats')
                for name in at['private'] if name in open(f'/proc/self/{table}').read()]
        print(seen)
        """,
        held=r"\[\]",
        outside=Outside.NOWHERE,
        no_control="a fact about a file that is there",
        wall="only what a hook needs is mounted",
    ),
    Probe(
        "B20",
        "a setuid program: is the bit honoured where it lies?",
        r"""
        import stat
        def honours(path):
            status = open('/proc/self/status').read()
            return not os.statvfs(path).f_flag & 2 and 'NoNewPrivs:\t0' in status
        found = [entry.path for entry in os.scandir('/usr/bin')
                 if entry.stat(follow_symlinks=False).st_mode & 0o6000]
        print([path for path in found if honours(path)])
        """,
        held=r"\[\]",
        succeeds=r"\['.+",
        wall="nosuid, no-new-privileges",
    ),
    Probe(
        "B21",
        "making devices: disk, memory, kernel log, null",
        """
        import stat
        for place in at['nodes']:
            for kind, major, minor in at['devices']:
                device = os.makedev(major, minor)
                print(tried(os.mknod, place + '/node', kind | 0o666, device))
        """,
        held=r"((EPERM|EROFS|EACCES)\n?)+",
        succeeds="None",
        outside=Outside.ROOT,
        wall="system call filter: mknod",
    ),
    Probe(
        "B21b",
        "opening devices of the host",
        """
        names = ('mem', 'kmsg', 'port', 'sda', 'vda', 'nvme0n1', 'loop0', 'loop-control',
                 'fuse', 'kvm', 'net/tun', 'mapper/control', 'snapshot', 'uinput', 'console',
                 'tty', 'hpet', 'vsock', 'vhost-net', 'userfaultfd', 'cuse', 'autofs',
                 'btrfs-control', 'rtc0')
        print(*(tried(os.open, '/dev/' + name, os.O_RDONLY) for name in names))
        """,
        held=r"((ENOENT|EACCES|ENXIO|EPERM|ENOTDIR) ?)+",
        succeeds=r".*\b\d+\b.*",
        outside=Outside.ROOT,
        wall="a /dev of five devices",
    ),
    Probe(
        "B22",
        "overwriting hooks.json: itself, by a link, by renaming what is above",
        """
        workspace, out = at['workspace'], at['out']
        pair = os.environ.get('PAIR', '0')
        target, link = workspace + '/hooks.json', f'{out}/link{pair}'
        os.symlink('../hooks.json', link)
        print(tried(lambda: open(link, 'a').close())); os.unlink(link)
        print(tried(lambda: open(target, 'a').close()))
        print(tried(os.link, target, link))
        if os.path.exists(link): os.unlink(link)
        print(tried(os.rename, out, workspace + '/elsewhere'))
        if os.path.exists(workspace + '/elsewhere'): os.rename(workspace + '/elsewhere', out)
        print(tried(os.rename, workspace, workspace + '2'))
        if os.path.exists(workspace + '2'): os.rename(workspace + '2', workspace)
        """,
        held=READ_ONLY,
        succeeds=r"(None\n?)+",
        wall="read-only mount; the grant is another mount",
    ),
    Probe(
        "B22b",
        "making hooks.json, config.toml, policies, plugins where they are not",
        """
        for name in ('config.json', 'policies/more.toml', 'plugins/x', 'plugins'):
            print(tried(lambda: open(at['workspace'] + '/' + name, 'x').close()))
        """,
        held=READ_ONLY,
        succeeds=r".*None.*",
        wall="read-only mount",
    ),
    Probe(
        "B23",
        "planting what runs outside: git hooks and fsmonitor, .envrc, editor tasks",
        """
        for name in ('.git/hooks/post-commit', '.git/config', '.envrc', '.vscode/tasks.json'):
            path = at['workspace'] + '/' + name
            print(tried(os.makedirs, os.path.dirname(path), exist_ok=True))
            print(tried(lambda: open(path, 'a').close()))
        """,
        held=r"((EROFS|ENOENT|None)\n?)+(?<!None)",
        succeeds=r"(None\n?)+",
        wall="read-only mount",
    ),
)
