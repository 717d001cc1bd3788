"""E and F. Does anything of the executor leak: environment, arguments, descriptors?"""

from __future__ import annotations

from tests.security.probe import Outside, Probe

PROBES = (
    Probe(
        "E40",
        "variables of the executor's environment",
        """
        allowed = {'PATH', 'SECURITY_MARK', 'PAIR', 'LC_CTYPE'}
        print(sorted(name for name in os.environ
                     if name not in allowed and not name.startswith('ZERO_HOOK_')))
        """,
        held=r"\[\]",
        succeeds=r"\['TMPDIR'\]",
        wall="the environment is built from nothing",
    ),
    Probe(
        "E45",
        "secrets in the environment or arguments of any process",
        """
        found = set()
        for pid in filter(str.isdigit, os.listdir('/proc')):
            for name in ('environ', 'cmdline', 'task/' + pid + '/environ'):
                try:
                    with open(f'/proc/{pid}/{name}', 'rb') as file:
                        if at['needle'].encode() in file.read(): found.add(name)
                except OSError: pass
        print(sorted(found))
        """,
        held=r"\[\]",
        succeeds=r"\['cmdline'.*\]",
        wall="process-id namespace, an empty environment",
    ),
    Probe(
        "E46",
        "changing the payload's file, or leaving one beside it",
        """
        path = at['payload'] or os.environ['ZERO_HOOK_PAYLOAD_FILE']
        place = os.path.dirname(path)
        print(tried(os.chmod, place, 0o700)); print(tried(os.chmod, path, 0o600))
        print(tried(lambda: open(path, 'a').close()))
        print(tried(lambda: open(place + '/more', 'x').close()))
        print(tried(lambda: open('/proc/self/fd/0', 'r+b').write(b'') if at['inside'] else None))
        """,
        held=r"(\S+\n){2}((EROFS|EACCES|EPERM)\n?){2}(0|EACCES|EROFS|EPERM)",
        succeeds=r"(None\n?){5}",
        wall="a read-only mount, or Landlock",
    ),
    Probe(
        "F47",
        "descriptors of the executor, the cell or the engine",
        """
        kinds = set()
        for number in os.listdir('/proc/self/fd'):
            try: target = os.readlink('/proc/self/fd/' + number)
            except OSError: continue
            if not target.startswith(('/tmp/', '/dev/null', '/proc/', 'pipe:', at['tmp'])):
                kinds.add(target.split('[')[0])
        print(sorted(kinds))
        """,
        held=r"\[\]",
        outside=Outside.NOWHERE,
        no_control="a fact; tests/unit/cell hands the cell more descriptors than it should have",
        wall="closed before the exec",
    ),
    Probe(
        "F48",
        "a terminal: standard streams, /dev/tty",
        """
        import sys
        print([number for number in range(3) if os.isatty(number)], os.readlink('/proc/self/fd/0'))
        print(tried(os.open, '/dev/tty', os.O_RDWR), tried(os.tcgetpgrp, 0))
        """,
        held=r"\[\] /dev/null\n(ENOENT|ENXIO|EACCES) ENOTTY",
        outside=Outside.NOWHERE,
        no_control="tests have no terminal to take away",
        wall="its own session; standard input is /dev/null",
    ),
    Probe(
        "F49",
        "leaving by fchdir to a directory that somebody left open",
        """
        seen = set()
        for number in range(3, 1024):
            try: os.fchdir(number)
            except OSError as error: seen.add(error.errno)
            else: seen.add(os.getcwd())
        print(sorted(seen, key=str))
        """,
        held=r"\[20, 9\]",
        outside=Outside.NOWHERE,
        no_control="a fact about descriptors that are not there",
        wall="closed before the exec",
    ),
)
