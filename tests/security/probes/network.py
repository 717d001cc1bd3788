"""A. Does anything get out to a network?"""

from __future__ import annotations

from tests.security.probe import Outside, Probe

NO_SOCKET = "system call filter: socket"

PROBES = (
    Probe(
        "A1",
        "curl to a listener on the host's loopback",
        """
        import time; began = time.monotonic()
        print(shell(f"curl -s -m5 http://127.0.0.1:{at['port']}/"))
        assert time.monotonic() - began < 5
        """,
        held=r"\[7\]",
        succeeds=r"\[(52|56)\]",
        wall=NO_SOCKET,
    ),
    Probe(
        "A2",
        "bash's /dev/tcp to a listener on the host's loopback",
        """
        print(shell(f"echo x >/dev/tcp/127.0.0.1/{at['port']}"))
        """,
        held=r".*(not supported|unreachable|refused).*\[1\]",
        succeeds=r"\[0\]",
        wall=NO_SOCKET,
    ),
    Probe(
        "A3",
        "UDP to loopback, and to a host beyond",
        """
        import socket
        def send(*to): return socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', to)
        for address, port in at['udp']: print(tried(send, address, port))
        """,
        held=r"(EAFNOSUPPORT\n?)+",
        succeeds=r"(1\n?)+",
        wall=NO_SOCKET,
    ),
    Probe(
        "A4",
        "resolving a name, which must fail at once",
        """
        import time; began = time.monotonic()
        print(shell(f"getent ahostsv4 {at['name']}"))
        assert time.monotonic() - began < 4
        """,
        held=r"\[2\]",
        succeeds=r".*\S+.*\[0\]",
        wall="no resolver, no socket",
    ),
    Probe(
        "A4b",
        "curl by name, which must fail at once",
        """
        import time; began = time.monotonic()
        print(shell(f"curl -s -m5 http://{at['name']}:{at['port']}/"))
        assert time.monotonic() - began < 4
        """,
        held=r"\[6\]",
        succeeds=r"\[(52|56)\]",
        wall="no resolver, no socket",
    ),
    Probe(
        "A5",
        "raw sockets: AF_PACKET, ICMP",
        """
        import socket
        print(tried(socket.socket, socket.AF_PACKET, socket.SOCK_RAW))
        print(tried(socket.socket, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))
        """,
        held=r"(EAFNOSUPPORT\n?){2}",
        succeeds=r"(<socket[^\n]*\n?){2}",
        outside=Outside.NAMESPACES,
        wall=NO_SOCKET,
    ),
    Probe(
        "A6",
        "the host's loopback by IPv6, and by a mapped IPv4 address",
        """
        import socket
        def reach(*to): socket.create_connection(to, 2).close()
        for address, port in at['tcp6']: print(tried(reach, address, port))
        """,
        held=r"(EAFNOSUPPORT\n?)+",
        succeeds=r"(None\n?)+",
        wall=NO_SOCKET,
    ),
    Probe(
        "A7",
        "an abstract Unix socket of the host",
        r"""
        import socket
        socket.socket(socket.AF_UNIX).connect('\0' + at['abstract']); print('reached')
        """,
        held="EAFNOSUPPORT",
        succeeds="reached",
        wall=NO_SOCKET,
    ),
    Probe(
        "A7b",
        "a Unix socket in the workspace, which the hook can see",
        """
        import socket, stat
        assert stat.S_ISSOCK(os.stat(at['socket']).st_mode)
        socket.socket(socket.AF_UNIX).connect(at['socket']); print('reached')
        """,
        held="EAFNOSUPPORT",
        succeeds="reached",
        wall=NO_SOCKET,
    ),
    Probe(
        "A7c",
        "the same by one of a pair of datagram sockets",
        """
        import socket
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        print(tried(one.sendto, b'x', at['datagrams']))
        """,
        held="EAFNOSUPPORT",
        succeeds="1",
        wall="system call filter: socketpair is for streams",
    ),
    Probe(
        "A7d",
        "the same by one of a pair of stream sockets that was connected anew",
        r"""
        import socket
        one, other = socket.socketpair()
        print(tried(one.sendto, b'x', at['socket']))
        print(tried(one.connect, at['socket']))
        print(tried(one.bind, '\0' + at['abstract'] + 'x'))
        """,
        held="EISCONN\nEPERM\nEPERM",
        succeeds=r"EISCONN\nEISCONN\nNone",
        wall="system call filter: connect, bind",
    ),
    Probe(
        "A8",
        "AF_VSOCK to the hypervisor",
        """
        import socket; print(tried(socket.socket, 40, socket.SOCK_STREAM))
        """,
        held="EAFNOSUPPORT",
        outside=Outside.NOWHERE,
        no_control="not every kernel has AF_VSOCK; A9 has one",
        wall=NO_SOCKET,
    ),
    Probe(
        "A9",
        "every other family: netlink, AF_ALG, AF_KEY, AF_XDP, …",
        """
        import socket
        seen = {tried(socket.socket, family, kind)[:7]
                for family in range(64) for kind in (1, 2, 3, 5)}
        print(sorted(seen))
        """,
        held=r"\['EAFNOSU'\]",
        succeeds=r".*'<socket'.*",
        outside=Outside.NAMESPACES,
        wall=NO_SOCKET,
    ),
    Probe(
        "A10",
        "a ring that could make sockets by itself (io_uring)",
        """
        print(syscall(425, 8, None), syscall(426, -1, 1, 0, 0, None, 0),
              syscall(427, -1, 0, None, 0))
        """,
        held="ENOSYS ENOSYS ENOSYS",
        succeeds=r"(EFAULT|EPERM) \S+ E(?!NOSYS)\S+",
        wall="system call filter: io_uring",
    ),
    Probe(
        "A11",
        "raising and making interfaces, through one of a pair of sockets",
        """
        import fcntl, socket, struct
        one, other = socket.socketpair()
        flags = struct.pack('16sh14x', b'lo', 1)
        print(tried(fcntl.ioctl, one, 0x8914, flags)[:6])
        print(sorted(name for _, name in socket.if_nameindex()) if at['inside'] is None else '')
        """,
        held="EPERM",
        succeeds=r"b'lo.*",
        outside=Outside.NAMESPACES,
        wall="no capability in a network namespace of its own",
    ),
    Probe(
        "A11b",
        "which interfaces there are",
        r"""
        import fcntl, socket, struct
        one, other = socket.socketpair()
        def name(index): return fcntl.ioctl(one, 0x8910, struct.pack('16si20x', b'', index))
        print(sorted({name(i)[:16].strip(b'\0').decode() for i in range(1, 600)
                      if not tried(name, i).startswith('E')}))
        """,
        held=r"\['lo'\]",
        succeeds=r"\[.*,.*\]",
        outside=Outside.ROOT,
        wall="network namespace",
    ),
)
