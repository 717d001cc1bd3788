"""The cell on real jobs: natively, as a container's PID 1, and with the sanitizers in it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from executor.cell import launch, protocol, seccomp
from executor.cell.protocol import Exit, Kind, Stopped
from executor.job import Job
from tests.support import missing
from tests.unit.cell.conftest import a_job, a_mount, reachable

pytestmark = [pytest.mark.namespace, pytest.mark.usefixtures("native")]
PATIENCE = 60.0


class Talk:
    """A cell and the test, frame by frame."""

    def __init__(self, job: Job, *, cell: Path | None = None) -> None:
        self.job = job
        self.process = launch.start("--enter", program=cell)
        self.process.sock.settimeout(PATIENCE)
        self._parser = protocol.FrameParser()
        self._frames: Iterator[tuple[bytes, bytes]] = iter(())

    def send(self, *frames: bytes) -> None:
        self.process.sock.sendall(b"".join(frames))

    def build(self) -> None:
        self.send(protocol.build_frame(self.job.sandbox))

    def frame(self, *, hold: bool = False) -> bytes:
        return protocol.job_frame(self.job, seccomp=seccomp.hook_program(), hold=hold)

    def next(self) -> tuple[bytes, bytes]:
        while True:
            for frame in self._frames:
                return frame
            data = self.process.sock.recv(65536)
            assert data, "the cell ended"
            self._frames = self._parser.feed(data)

    def expect(self, kind: bytes) -> bytes:
        seen, body = self.next()
        assert seen == kind, (seen, body)
        return body

    def to_the_end(self) -> tuple[Exit, bytes, bytes]:
        output = {protocol.STDOUT: b"", protocol.STDERR: b""}
        while True:
            kind, body = self.next()
            if kind == protocol.EXIT:
                return protocol.decode_exit(body), *output.values()  # type: ignore[return-value]
            if kind in output:
                output[kind] += body

    def ended(self) -> bool:
        """Whether everything of it has gone, once we hung up or it was told to go."""
        import select

        return bool(select.select([self.process.pidfd], [], [], PATIENCE)[0])


@contextmanager
def talk(*argv: str, cell: Path | None = None, **changes: object) -> Iterator[Talk]:
    started = Talk(a_job(*argv, **changes), cell=cell)  # type: ignore[arg-type]
    try:
        yield started
    finally:
        started.process.sock.close()
        assert started.ended()
        started.process.forget()


def a_run(*argv: str, cell: Path | None = None, **changes: object) -> tuple[Exit, bytes, bytes]:
    with talk(*argv, cell=cell, **changes) as cell_talk:
        cell_talk.build()
        first, body = cell_talk.next()
        if first == protocol.EXIT:
            return protocol.decode_exit(body), b"", b""
        cell_talk.send(cell_talk.frame())
        return cell_talk.to_the_end()


def test_the_payload_is_stdin_and_a_file_of_the_hooks_own(place: Path) -> None:
    script = (
        "cat; stat -c '%a %s' /run/hook/payload.json /run/hook; "
        "touch /run/hook/x; chmod 600 /run/hook/payload.json"
    )
    last, out, err = a_run("sh", "-c", script, payload=b"{}\n", stdin=True)
    assert (last.kind, last.number) == (Kind.EXITED, 1)
    assert out.startswith(b"{}\n400 3\n500 ")
    assert err.count(b"Read-only file system") == 2


def test_without_stdin_it_is_empty() -> None:
    assert a_run("cat", payload=b"secret")[1] == b""


def test_a_payload_larger_than_every_limit_arrives_whole() -> None:
    payload = os.urandom(1 << 20) * 16
    script = "wc -c < /run/hook/payload.json; wc -c"
    last, out, _ = a_run("sh", "-c", script, payload=payload, stdin=True)
    assert last.number == 0
    assert out.split() == [b"16777216", b"16777216"]


def test_job_and_term_in_one_piece_are_both_heard() -> None:
    with talk("sleep", "1000") as cell:
        cell.build()
        cell.expect(protocol.READY)
        cell.send(cell.frame(), protocol.frame(protocol.TERM))
        last, _, _ = cell.to_the_end()
    assert last.stopped is Stopped.ASKED_TERM
    assert (last.kind, last.number) == (Kind.SIGNALLED, signal.SIGTERM)


def test_a_hook_that_ignores_term_is_killed_after_the_grace() -> None:
    last, _, _ = a_run("sh", "-c", "trap '' TERM; sleep 1000; sleep 1000", timeout=0.05, grace=0.1)
    assert last.stopped is Stopped.DEADLINE_KILL
    assert (last.kind, last.number) == (Kind.SIGNALLED, signal.SIGKILL)


def test_a_stopped_hook_is_woken_to_end() -> None:
    last, _, _ = a_run("sh", "-c", "kill -STOP $$", timeout=0.05, grace=1000)
    assert last.stopped is Stopped.DEADLINE_TERM
    assert last.number == signal.SIGTERM


def test_a_late_hook_that_then_exits_with_0_was_late() -> None:
    last, out, _ = a_run("bash", "-c", "trap 'echo bye; exit 0' TERM; while :; do sleep 0.01; done",
                         timeout=0.1, grace=1000)  # fmt: skip
    assert (last.kind, last.number, last.stopped) == (Kind.EXITED, 0, Stopped.DEADLINE_TERM)
    assert out == b"bye\n"


def test_what_a_hook_leaves_behind_is_killed_and_delays_nothing() -> None:
    script = "for i in 1 2 3; do setsid sh -c 'trap \"\" TERM; sleep 1000' & done; echo done"
    last, out, _ = a_run("sh", "-c", script)
    assert (last.kind, last.number, last.stopped) == (Kind.EXITED, 0, Stopped.NO)
    assert last.strays >= 3
    assert out == b"done\n"


def test_orphans_are_reaped_while_the_hook_runs() -> None:
    script = (
        "for i in 1 2 3 4 5; do (true &); done; "
        "while grep -l 'Z (zombie)' /proc/[0-9]*/status >/dev/null 2>&1; do :; done"
    )
    assert a_run("sh", "-c", script)[1] == b""


def test_output_beyond_the_cap_is_counted_and_blocks_nobody() -> None:
    last, out, err = a_run("sh", "-c", "yes | head -c 30000000; echo e >&2", output=1000)
    assert (last.number, last.stdout_bytes, last.stderr_bytes) == (0, 30_000_000, 2)
    assert out == b"y\n" * 500
    assert err == b"e\n"


def test_a_peer_that_does_not_read_delays_neither_hook_nor_deadline() -> None:
    with talk("sh", "-c", "yes & yes >&2 & wait", output=4 << 20, timeout=0.3, grace=0.1) as cell:
        cell.process.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        cell.build()
        cell.expect(protocol.READY)
        cell.send(cell.frame())
        children = Path(f"/proc/{cell.process.pid}/task/{cell.process.pid}/children")
        first = children.read_text().split()[0]
        hook_of = Path(f"/proc/{first}/task/{first}/children")
        # Nothing is read until the cell alone has ended everything.
        _wait_until(lambda: bool(hook_of.read_text().split()))
        _wait_until(lambda: not hook_of.read_text().split())
        last, out, err = cell.to_the_end()
    assert last.stopped in (Stopped.DEADLINE_TERM, Stopped.DEADLINE_KILL)
    assert len(out) == len(err) == 4 << 20


def test_the_end_of_the_lifeline_is_the_end_of_everything() -> None:
    with talk("sh", "-c", "trap '' TERM; setsid sleep 1000 & sleep 1000") as cell:
        cell.build()
        cell.expect(protocol.READY)
        cell.send(cell.frame())
        cell.expect(protocol.STARTED)
        # talk() hangs up, and sees that all of it ends.


def test_a_cell_that_gets_no_job_ends_by_itself() -> None:
    process = launch.start("--enter", "--max-age", "1")
    process.sock.sendall(protocol.build_frame(a_job("true").sandbox))
    process.sock.settimeout(PATIENCE)
    frames = list(protocol.FrameParser().feed(_until_the_end(process.sock)))
    process.sock.close()
    process.forget()
    assert [kind for kind, _ in frames] == [protocol.READY, protocol.EXIT]
    assert protocol.decode_exit(frames[1][1]).stage == "job"


def _until_the_end(sock: socket.socket) -> bytes:
    data = b""
    while b"X" not in data:
        data += sock.recv(65536)
    return data


@pytest.mark.parametrize(
    ("command", "stage", "error"),
    [
        ("no-such-command", "exec", "ENOENT"),
        ("/no/such/file", "exec", "ENOENT"),
        ("{place}/plain", "exec", "EACCES"),
        ("{place}/no-first-line", "exec", "ENOEXEC"),
        ("{place}/lost-interpreter", "interpreter", "ENOENT"),
        ("{place}", "exec", "EACCES"),
    ],
)
def test_what_cannot_be_executed_says_so(place: Path, command: str, stage: str, error: str) -> None:
    import errno

    for name, text, mode in (
        ("plain", "#!/bin/sh\n", 0o644),
        ("no-first-line", "echo hi\n", 0o755),
        ("lost-interpreter", "#!/no/such/shell\n", 0o755),
    ):
        (place / name).write_text(text)
        (place / name).chmod(mode)
    last, _, _ = a_run(command.format(place=place), mounts=(a_mount(place),))
    assert (last.kind, last.stage) == (Kind.NOT_STARTED, stage)
    assert errno.errorcode[last.number] == error


@pytest.mark.parametrize("cwd", ["/nowhere", "{place}/link", "{place}/file", "/proc/self/cwd", ""])
def test_a_working_directory_that_is_none_is_refused(place: Path, cwd: str) -> None:
    (place / "link").symlink_to("/usr")
    last, _, _ = a_run("true", cwd=cwd.format(place=place), mounts=(a_mount(place),))
    assert (last.kind, last.stage) == (Kind.NOT_STARTED, "cwd")


def test_a_mount_that_was_swapped_is_found(place: Path) -> None:
    mount = a_mount(place / "file")
    (place / "file").rename(place / "old")
    (place / "file").write_text("another")
    last, _, _ = a_run("true", mounts=(mount,))
    assert (last.kind, last.stage) == (Kind.NOT_STARTED, f"mount {place}/file")


def test_mounts_stand_at_their_own_path_and_may_lie_in_each_other(place: Path) -> None:
    (place / "store").write_text("of the store")
    (place / "inner").mkdir()
    (place / "inner" / "script").write_text("of the workspace")
    mounts = (
        a_mount(place / "inner"),
        a_mount(place / "store", target=f"{place}/inner/script"),
        a_mount(place / "store", target="/home/some one/é/x"),
        a_mount(place / "store", target="/root/x"),
        a_mount(place / "store", target="/var/lib/x"),
        a_mount(place / "store", target="/run/user/7/x"),
        a_mount(place / "store", target="/usr/bin/env"),
    )
    names = [mount.target for mount in mounts[1:]]
    last, out, err = a_run("cat", *names, mounts=mounts, cwd=f"{place}/inner")
    assert (last.number, err) == (0, b"")
    assert out == b"of the store" * 6


def test_no_ghost_is_made_on_the_host(place: Path) -> None:
    (place / "granted").mkdir(mode=0o777)
    (place / "granted").chmod(0o777)
    mounts = (
        a_mount(place / "granted", writable=True),
        a_mount(place / "file", target=f"{place}/granted/new/file"),
    )
    last, _, _ = a_run("true", mounts=mounts)
    assert (last.kind, last.stage) == (Kind.NOT_STARTED, f"target {place}/granted/new/file")
    assert list((place / "granted").iterdir()) == []


@pytest.mark.parametrize("target", ["/", "/proc/x", "/dev/null", "/sys", "/run/hook/x", "/a/../b"])
def test_some_targets_are_nobodys(place: Path, target: str) -> None:
    last, _, _ = a_run("true", mounts=(a_mount(place / "file", target=target),))
    assert last.kind is Kind.NOT_STARTED
    assert last.stage.startswith("target")


def test_an_images_root_takes_mounts_that_it_has_no_place_for(tmp_path: Path, place: Path) -> None:
    root = tmp_path / "root"
    for name in ("usr/bin", "home", "var/log", "etc", "tmp", "opt/kept"):
        (root / name).mkdir(parents=True)
    (root / "usr/bin/cell").write_bytes(launch.cell_path().read_bytes())
    (root / "usr/bin/cell").chmod(0o755)
    (root / "bin").symlink_to("usr/bin")
    (root / "opt/kept/file").write_text("kept")
    mounts = tuple(
        a_mount(place / "file", target=target)
        for target in ("/home/a/ws/file", "/var/log/prx/x", "/opt/new", "/usr/bin/added")
    )
    last, _, _ = a_run("/bin/cell", mounts=mounts, root=str(root), cwd="/var/log/prx")
    assert (last.kind, last.number) == (Kind.EXITED, 64)
    assert not (root / "home/a").exists()


def test_a_held_hook_stands_before_its_exec_with_all_walls() -> None:
    with talk("true") as cell:
        cell.build()
        cell.expect(protocol.READY)
        cell.send(cell.frame(hold=True))
        cell.expect(protocol.STARTED)
        pid = cell.process.pid
        for _ in range(2):
            pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
        status = Path(f"/proc/{pid}/status").read_text()
        assert "Seccomp:\t2" in status
        assert "CapBnd:\t0000000000000000" in status
        cell.send(protocol.frame(protocol.KILL))
        last, _, _ = cell.to_the_end()
    assert last.stopped is Stopped.ASKED_KILL


def test_host_root_is_nobody_in_a_sandbox() -> None:
    from dataclasses import replace

    job = a_job("true")
    for changes in ({"uid": 0}, {"uid": 2**32 - 1}):
        process = launch.start("--enter")
        process.sock.settimeout(PATIENCE)
        process.sock.sendall(protocol.build_frame(replace(job.sandbox, **changes)))  # type: ignore[arg-type]
        (frame,) = protocol.FrameParser().feed(process.sock.recv(65536))
        process.sock.close()
        process.forget()
        assert protocol.decode_exit(frame[1]).stage.startswith("identity")


def test_nothing_runs_outside_of_a_sandbox() -> None:
    answer = subprocess.run([launch.cell_path()], capture_output=True, check=False)
    assert answer.returncode == 64


def test_a_parent_with_odd_habits_changes_nothing(place: Path) -> None:
    """Closed descriptors, ignored and blocked signals, tiny limits."""
    code = (
        "import os, resource, signal, sys\n"
        "from tests.unit.cell.test_cell import a_run\n"
        "os.closerange(0, 3)\n"
        "for n in (17, 15, 13): signal.signal(n, signal.SIG_IGN)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 4096))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))\n"
        "os.umask(0o777)\n"
        "last, out, err = a_run('sh', '-c', 'grep ^Sig[BI] /proc/self/status; umask; cat',"
        " stdin=True, payload=b'x' * 9999)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))\n"
        f"os.umask(0o22); open({str(place / 'said')!r}, 'wb').write(out)\n"
    )
    done = subprocess.Popen([sys.executable, "-c", code])
    assert done.wait(PATIENCE) == 0
    said = (place / "said").read_bytes()
    assert said.startswith(b"SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n0077\nxxx")
    assert said.count(b"x") == 9999


# --------------------------------------------------------------------------- as a container's PID 1


def test_as_pid_1_it_is_ready_at_once_and_runs_a_job(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        missing("root", "unshare -p and a /run/hook to mount")
    ours, theirs = socket.socketpair()
    setup = (
        "mount -t tmpfs hook /run && mkdir -m 700 /run/hook && chown 64123:64123 /run/hook && "
        "exec setpriv --bounding-set=-all --inh-caps=-all --reuid=64123 --regid=64123 "
        f"--clear-groups {tmp_path}/cell"
    )
    program = tmp_path / "cell"
    program.write_bytes(launch.cell_path().read_bytes())
    program.chmod(0o755)
    reachable(tmp_path)
    with theirs:
        process = subprocess.Popen(
            ["unshare", "-pfmn", "--kill-child", "sh", "-c", setup],
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
        )
    ours.settimeout(PATIENCE)
    job = a_job("sh", "-c", "id -u; cat; setsid sleep 1000 & exit 7", stdin=True)
    ours.sendall(protocol.job_frame(job, seccomp=seccomp.hook_program()))
    parser = protocol.FrameParser()
    seen: list[tuple[bytes, bytes]] = []
    while not seen or seen[-1][0] != protocol.EXIT:
        seen += parser.feed(ours.recv(65536))
    ours.close()
    assert process.wait(PATIENCE) == 0
    assert [kind for kind, _ in seen[:2]] == [protocol.READY, protocol.STARTED]
    assert b"".join(body for kind, body in seen if kind == b"1") == b"64123\n{}\n"
    last = protocol.decode_exit(seen[-1][1])
    assert (last.kind, last.number, last.strays) == (Kind.EXITED, 7, 1)


# ---------------------------------------------------------------------------- with the sanitizers


def test_the_sanitizers_find_nothing(sanitized_cell: Path, place: Path) -> None:
    (place / "w").mkdir()
    (place / "w").chmod(0o777)
    mounts = (a_mount(place), a_mount(place / "w", writable=True))
    script = f"cat; echo e >&2; setsid sleep 9 & touch {place}/w/x; head -c 300000 /dev/zero"
    last, out, err = a_run(
        "sh", "-c", script, cell=sanitized_cell, mounts=mounts, stdin=True, output=100_000,
        payload=b"p" * 70_000,
    )  # fmt: skip
    assert (last.kind, last.number) == (Kind.EXITED, 0)
    assert (len(out), err) == (100_000, b"e\n")
    last, _, _ = a_run("no-such", cell=sanitized_cell)
    assert last.stage == "exec"
    last, _, _ = a_run("sleep", "9", cell=sanitized_cell, timeout=0.1)
    assert last.stopped is Stopped.DEADLINE_TERM


def _wait_until(holds: object) -> None:
    import time

    assert callable(holds)
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        os.sched_yield()
