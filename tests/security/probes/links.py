"""C. Does a link, or a path with many turns, lead out? (24 to 28 are in ``test_paths``)"""

from __future__ import annotations

from tests.security.probe import Probe

PROBES = (
    Probe(
        "C29",
        "magic links: /proc/1/root, /proc/self/root/.., /proc/*/cwd, descriptors",
        """
        fronts = ['/proc/1/root', '/proc/1/cwd/..', '/proc/self/root/../..', '/proc/self/cwd/../..',
                  '/dev/fd/0/..', '/proc/thread-self/root']
        fronts += [f'/proc/{pid}/root' for pid in os.listdir('/proc') if pid.isdigit()]
        fronts += [f'/proc/self/fd/{number}' for number in range(0, 64)]
        seen = {tried(lambda: open(front + at['secret']).read()) for front in fronts}
        print(*sorted(seen))
        """,
        held=r"((ENOENT|EACCES|ENOTDIR) ?)+",
        succeeds=r".*canary.*",
        wall="the root is another",
    ),
    Probe(
        "C29b",
        "out of the working directory by a descriptor that was kept",
        """
        top = os.open('/', os.O_PATH)
        for step in ('..', '../..', '../../../..'):
            print(tried(lambda: open(os.path.join('/proc/self/fd', str(top), step)
                                     + at['secret']).read()))
        """,
        held=r"((ENOENT|EACCES)\n?)+",
        succeeds=r"(.*canary.*\n?)+",
        wall="the root is another",
    ),
    Probe(
        "C30",
        "moving a file out of /tmp into and above the workspace",
        """
        for place in at['above']:
            with open(at['tmp'] + '/moved', 'w') as file: file.write('x')
            print(tried(os.rename, at['tmp'] + '/moved', place + '/moved'))
        """,
        held=r"((EXDEV|EROFS|EACCES)\n?)+",
        succeeds=r"(None\n?)+",
        wall="they are different, read-only mounts",
    ),
    Probe(
        "C30b",
        "a hard link out of the read-only workspace into the grant",
        """
        name = at['out'] + '/hard' + os.environ.get('PAIR', '')
        print(tried(os.link, at['workspace'] + '/places.json', name))
        if os.path.exists(name): os.unlink(name)
        """,
        held=r"EXDEV|EPERM|EACCES",
        succeeds="None",
        wall="they are different mounts",
    ),
)
