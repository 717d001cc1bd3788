"""A Job becomes an Outcome in a container, and nothing is left behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import pytest

from executor.backends.docker import DockerBackend
from executor.backends.docker_body import LABEL_DEADLINE, LABEL_INSTANCE, LABEL_RUN
from executor.cell import launch
from executor.disk.instance import Instance
from executor.errors import Unavailable
from executor.outcome import Cause, Outcome, Stage, Status
from tests.integration.conftest import HOOK_ID, MEMORY, MakeJob, Relay, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    import docker

    from executor.backends.docker_engine import Engine

pytestmark = [pytest.mark.docker, pytest.mark.anyio]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    loop: str = request.param
    return loop


def kind(outcome: Outcome) -> tuple[Status, Cause]:
    return outcome.status, outcome.cause


# ------------------------------------------------------------------------------------- what it does


async def test_a_cell_that_was_installed_for_its_owner_alone_still_starts(
    instance: Instance, job: MakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Installing below umask 077 may leave it so; in the container the hook's id executes it."""
    private = tmp_path / "private"
    private.write_bytes(launch.cell_path().read_bytes())
    private.chmod(0o700)
    async with DockerBackend(instance, str(private)) as given:
        assert kind(await given.run(job("true"))) == (Status.ERROR, Cause.SETUP)
    monkeypatch.setattr(launch, "cell_path", lambda: private)
    async with DockerBackend(instance) as own:
        outcome = await own.run(job("true"))
    assert kind(outcome) == (Status.OK, Cause.EXIT), outcome.reason


async def test_a_hook_gets_its_arguments_environment_and_directory(
    backend: DockerBackend, job: MakeJob
) -> None:
    text = 'printf "%s|" "$0" "$@"; pwd; env -0 | sort -z | tr "\\0" "\\n"; echo oh >&2; exit 3'
    env = (("PATH", "/usr/bin:/bin"), ("A", "1\n2"))
    outcome = await backend.run(job("sh", "-c", text, "a b", "$HOME;", env=env))
    assert kind(outcome) == (Status.FAILED, Cause.EXIT)
    assert (outcome.exit_code, outcome.stderr) == (3, b"oh\n")
    assert outcome.stdout == b"a b|$HOME;|/tmp\nA=1\n2\nPATH=/usr/bin:/bin\nPWD=/tmp\n"
    assert outcome.usage.start_seconds > 0
    assert outcome.usage.peak_memory_bytes


@pytest.mark.parametrize("stdin", [True, False])
async def test_a_large_payload_arrives_whole(
    backend: DockerBackend, job: MakeJob, stdin: bool
) -> None:
    payload = b"x" * (15 << 20)
    outcome = await backend.run(
        job("sh", "-c", "wc -c; wc -c </run/hook/payload.json", payload=payload, stdin=stdin)
    )
    assert outcome.ok
    assert outcome.stdout.split() == [b"%d" % (stdin * len(payload)), b"%d" % len(payload)]


async def test_a_hook_that_reads_nothing_of_a_large_payload_is_no_error(
    backend: DockerBackend, job: MakeJob
) -> None:
    assert (await backend.run(job("true", payload=b"x" * (15 << 20), stdin=True))).ok


async def test_a_flood_is_drained_and_counted(backend: DockerBackend, job: MakeJob) -> None:
    outcome = await backend.run(job("sh", "-c", "yes | head -c 20000000"))
    assert outcome.ok
    assert (len(outcome.stdout), outcome.truncated) == (64 << 10, True)
    assert outcome.usage.stdout_bytes == 20_000_000


async def test_what_is_shown_can_be_read_and_what_is_granted_written(
    backend: DockerBackend, job: MakeJob, tmp_path: Path
) -> None:
    workspace, granted = tmp_path / "ws", tmp_path / "ws" / "out"
    granted.mkdir(parents=True)
    granted.chmod(0o777)
    (workspace / "file").write_text("content")
    (workspace / "file").chmod(0o644)
    workspace.chmod(0o755)
    text = "cat file; echo no >new; echo yes >out/new; stat -c %a out/new"
    outcome = await backend.run(
        job(
            "sh",
            "-c",
            text,
            cwd=str(workspace),
            mounts=(shown(workspace), shown(granted, writable=True)),
        )
    )
    assert outcome.stdout == b"content600\n"
    assert b"Read-only file system" in outcome.stderr
    assert not (workspace / "new").exists()
    status = (granted / "new").stat()
    assert (status.st_uid, status.st_gid) == (HOOK_ID, HOOK_ID)


async def test_runs_at_once_do_not_meet(backend: DockerBackend, job: MakeJob) -> None:
    outputs: dict[int, bytes] = {}

    async def one(number: int) -> None:
        outcome = await backend.run(job("sh", "-c", f"echo {number} >/tmp/x; cat /tmp/*"))
        outputs[number] = outcome.stdout

    async with anyio.create_task_group() as group:
        for number in range(6):
            group.start_soon(one, number)
    assert outputs == {number: b"%d\n" % number for number in range(6)}


# -------------------------------------------------------------------------------------- how it ends


async def test_a_command_that_is_not_there_is_not_found(
    backend: DockerBackend, job: MakeJob
) -> None:
    assert kind(await backend.run(job("no-such"))) == (Status.ERROR, Cause.NOT_FOUND)
    assert kind(await backend.run(job("/etc/passwd"))) == (Status.ERROR, Cause.NOT_EXECUTABLE)


async def test_too_much_memory_is_oom_and_no_mere_signal(
    backend: DockerBackend, job: MakeJob
) -> None:
    outcome = await backend.run(job("python3", "-c", f"bytearray({MEMORY * 2})"))
    assert kind(outcome) == (Status.OOM, Cause.MEMORY)
    assert kind(await backend.run(job("sh", "-c", "kill -9 $$"))) == (
        Status.SIGNALLED,
        Cause.SIGNAL,
    )


async def test_the_payload_is_no_part_of_the_hooks_memory(
    backend: DockerBackend, job: MakeJob
) -> None:
    use = f"b = bytearray({MEMORY - (16 << 20)}); print(len(b))"
    outcome = await backend.run(job("python3", "-c", use, payload=b"x" * (15 << 20)))
    assert outcome.ok


async def test_a_deadline_is_term_and_then_kill(backend: DockerBackend, job: MakeJob) -> None:
    outcome = await backend.run(job("sleep", "60", timeout=0.2))
    assert kind(outcome) == (Status.TIMEOUT, Cause.WALL_CLOCK)
    assert outcome.stage is Stage.TERM
    stubborn = job("sh", "-c", "trap '' TERM; while :; do sleep 1; done", timeout=0.2, grace=0.2)
    outcome = await backend.run(stubborn)
    assert (kind(outcome), outcome.stage) == ((Status.TIMEOUT, Cause.WALL_CLOCK), Stage.KILL)


async def test_what_a_hook_leaves_behind_is_killed_and_counted(
    backend: DockerBackend, job: MakeJob
) -> None:
    outcome = await backend.run(job("sh", "-c", "sleep 60 & setsid sleep 60 & exit 0"))
    assert (outcome.ok, outcome.killed_strays) == (True, 2)


async def test_cancelling_a_run_ends_its_container(
    backend: DockerBackend, job: MakeJob, client: docker.APIClient, instance: Instance
) -> None:
    started = anyio.Event()

    async def one() -> None:
        await backend.run(job("sleep", "60"))
        pytest.fail("it should have been cancelled")

    async def watch() -> None:
        events = client.events(
            decode=True,
            filters={"event": "start", "label": f"{LABEL_INSTANCE}={instance.id}"},
        )
        try:
            await anyio.to_thread.run_sync(next, events, abandon_on_cancel=True)
        finally:
            events.close()
        started.set()

    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        await anyio.wait_all_tasks_blocked()
        async with anyio.create_task_group() as runs:
            runs.start_soon(one)
            await started.wait()
            runs.cancel_scope.cancel()
    await backend.drain()
    assert client.containers(all=True, filters={"label": f"{LABEL_INSTANCE}={instance.id}"}) == []


async def test_closing_stops_what_runs(
    backend: DockerBackend, job: MakeJob, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out").chmod(0o777)
    fifo = tmp_path / "out" / "fifo"
    os.mkfifo(fifo)
    fifo.chmod(0o666)
    outcomes = []

    async def one() -> None:
        text = f"echo running >{fifo}; sleep 60"
        mounts = (shown(tmp_path / "out", writable=True),)
        outcomes.append(await backend.run(job("sh", "-c", text, mounts=mounts)))

    async with anyio.create_task_group() as group:
        group.start_soon(one)
        assert await anyio.to_thread.run_sync(fifo.read_text) == "running\n"
        await backend.close()
    assert [kind(outcome) for outcome in outcomes] == [(Status.INTERRUPTED, Cause.STOPPED)]


# ------------------------------------------------------------------------------ what it will not do


async def test_what_must_not_be_asked_for_is_refused(backend: DockerBackend, job: MakeJob) -> None:
    for walls in (
        {"image": "python"},
        {"image": "python:latest"},
        {"runtime": "no-such-runtime"},
        {"uid": 0},
        {"gid": 0},
    ):
        assert kind(await backend.run(job("true", **walls))) == (Status.REFUSED, Cause.POLICY)


async def test_an_image_that_is_not_there_is_not_pulled(
    backend: DockerBackend, job: MakeJob
) -> None:
    outcome = await backend.run(job("true", image=f"sha256:{'0' * 64}"))
    assert kind(outcome) == (Status.ERROR, Cause.SETUP)
    assert "No such image" in (outcome.reason or "")


async def test_an_image_with_volumes_is_refused(
    backend: DockerBackend, job: MakeJob, client: docker.APIClient, image: str
) -> None:
    container = client.create_container(image, command=["true"])["Id"]
    try:
        other = client.commit(container, changes="VOLUME /data")["Id"]
        try:
            outcome = await backend.run(job("true", image=other))
            assert kind(outcome) == (Status.REFUSED, Cause.POLICY)
        finally:
            client.remove_image(other)
    finally:
        client.remove_container(container)


async def test_a_source_that_is_gone_is_an_error_and_is_not_made(
    backend: DockerBackend, job: MakeJob, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    mount = shown(source)
    source.rmdir()
    outcome = await backend.run(job("true", mounts=(mount,)))
    assert kind(outcome) == (Status.ERROR, Cause.SETUP)
    assert not source.exists()


async def test_a_source_that_was_replaced_is_an_error_and_nothing_runs(
    backend: DockerBackend, job: MakeJob, tmp_path: Path
) -> None:
    source, other = tmp_path / "source", tmp_path / "other"
    source.mkdir()
    mount = shown(source)
    source.rename(other)
    source.mkdir()
    outcome = await backend.run(job("sh", "-c", "echo ran", mounts=(mount,)))
    assert kind(outcome) == (Status.ERROR, Cause.SETUP)
    assert (outcome.stdout, str(source) in (outcome.reason or "")) == (b"", True)


async def test_only_the_engines_own_images_can_be_named(backend: DockerBackend, image: str) -> None:
    assert (await backend.image(image)).id == image
    assert (await backend.image("python")).id == image
    with pytest.raises(Unavailable, match="is defined"):
        await backend.image("no-such")
    with pytest.raises(Unavailable, match="cannot be used"):
        await backend.image(f"sha256:{'0' * 64}")


# ----------------------------------------------------------------------------- what is really there


async def test_every_mandatory_control_is_in_force(
    backend: DockerBackend, job: MakeJob, tmp_path: Path
) -> None:
    controls = await backend.inspect(job("true", mounts=(shown(tmp_path),)))
    assert [control for control in controls if not control.in_force and control.mandatory] == []
    assert {control.name for control in controls} >= {
        "unprivileged user",
        "no capabilities",
        "no new privileges",
        "system call filter",
        "no network",
        "read-only root",
        "limit of memory",
        "limit of pids",
        "limit of cpu",
        f"{tmp_path} read-only",
    }


async def test_a_limit_that_the_engine_drops_is_refused(
    backend: DockerBackend, job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    from executor.backends.docker_engine import Engine

    inspect = Engine.inspect

    def forgetful(self: Engine, container: str) -> dict[str, object]:
        document = inspect(self, container)
        document["HostConfig"]["Memory"] = 0
        return document

    monkeypatch.setattr(Engine, "inspect", forgetful)
    outcome = await backend.run(job("sh", "-c", "echo ran"))
    assert kind(outcome) == (Status.REFUSED, Cause.POLICY)
    assert "Memory is 0" in (outcome.reason or "")


async def test_no_terminal_and_no_message_queue_can_be_had(
    backend: DockerBackend, job: MakeJob
) -> None:
    text = "cat /dev/ptmx; cat /dev/tty; ls /dev/pts /dev/mqueue; touch /dev/mqueue/x"
    outcome = await backend.run(job("sh", "-c", text))
    assert not outcome.ok
    assert outcome.stdout == b"/dev/mqueue:\n\n/dev/pts:\n"
    reasons = [line.rpartition(b": ")[2] for line in outcome.stderr.splitlines()]
    assert reasons == [
        b"No such file or directory",
        b"No such device or address",
        b"Read-only file system",
    ]


# --------------------------------------------------------------------------- when the engine is not


async def test_no_engine_is_said_with_a_remedy(
    instance: Instance, job: MakeJob, tmp_path: Path
) -> None:
    async with DockerBackend(instance, base_url=f"unix://{tmp_path}/none") as backend:
        with pytest.raises(Unavailable) as error:
            await backend.probe()
        assert error.value.engine
        assert error.value.remedy
        assert kind(await backend.run(job("true"))) == (Status.ERROR, Cause.ENGINE_LOST)
        assert await backend.sweep() == 0


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the library's, where it cannot connect
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_an_engine_that_is_lost_ends_the_run_and_the_container(
    instance: Instance,
    job: MakeJob,
    relay: Callable[..., Relay],
    engine: Engine,
    client: docker.APIClient,
    tmp_path: Path,
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out").chmod(0o777)
    fifo = tmp_path / "out" / "fifo"
    os.mkfifo(fifo)
    fifo.chmod(0o666)
    between = relay()
    outcomes = []

    async def one(backend: DockerBackend) -> None:
        text = f"echo running >{fifo}; sleep 60"
        mounts = (shown(tmp_path / "out", writable=True),)
        outcomes.append(await backend.run(job("sh", "-c", text, mounts=mounts)))

    async with (
        DockerBackend(instance, base_url=between.url) as backend,
        anyio.create_task_group() as group,
    ):
        group.start_soon(one, backend)
        assert await anyio.to_thread.run_sync(fifo.read_text) == "running\n"
        between.cut()
    gc.collect()  # while the warnings about it are ignored
    assert [kind(outcome) for outcome in outcomes] == [(Status.ERROR, Cause.ENGINE_LOST)]
    (left,) = engine.labelled(f"{LABEL_INSTANCE}={instance.id}")
    client.wait(left["Id"], timeout=60)  # its lifeline ended: so did it
    assert engine.remove(left["Id"])


async def test_a_container_that_is_created_late_is_removed(
    instance: Instance, job: MakeJob, relay: Callable[..., Relay], engine: Engine
) -> None:
    between = relay(hold=b"/containers/create")

    async def one(backend: DockerBackend) -> None:
        await backend.run(job("true"))
        pytest.fail("it should have been cancelled")

    async with DockerBackend(instance, base_url=between.url) as backend:
        async with anyio.create_task_group() as group:
            group.start_soon(one, backend)
            await anyio.to_thread.run_sync(between.asked.wait)
            group.cancel_scope.cancel()
        assert engine.labelled(f"{LABEL_INSTANCE}={instance.id}")
        between.release.set()
        await backend.drain()
    assert engine.labelled(f"{LABEL_INSTANCE}={instance.id}") == []


async def test_a_container_that_somebody_removes_is_an_engine_lost(
    backend: DockerBackend, job: MakeJob, engine: Engine, instance: Instance
) -> None:
    outcomes = []

    async def one(outcome_of: str) -> None:
        outcomes.append(await backend.run(replace(job("sleep", "60"), run_id=outcome_of)))

    async with anyio.create_task_group() as group:
        group.start_soon(one, "victim")
        found: list[dict[str, object]] = []
        while not found or found[0]["State"] != "running":
            found = await anyio.to_thread.run_sync(engine.labelled, f"{LABEL_RUN}=victim")
        await anyio.to_thread.run_sync(engine.remove, str(found[0]["Id"]))
    assert outcomes[0].status is Status.ERROR
    assert "without a report" in (outcomes[0].reason or "")
    assert instance.id


# ------------------------------------------------------------------------------------- what is left


SCRIPT = """
    import anyio, sys
    from pathlib import Path
    from executor.backends.docker import DockerBackend
    from executor.disk.instance import Instance
    from executor.job import Job, Limits, Sandbox

    image, directory, uid = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    limits = Limits(1 << 26, 32, 1.0, 1 << 20, 64, 1 << 20, 1 << 16)
    job = Job("run_killed", Sandbox(uid, uid, limits, image=image), "sleep", ("sleep", "600"),
              (("PATH", "/usr/bin:/bin"),), "/", 600, b"")

    async def main():
        instance = Instance.open(directory)
        print(instance.id, flush=True)
        await DockerBackend(instance).run(job)

    anyio.run(main)
"""


async def test_what_a_killed_executor_leaves_ends_by_itself_and_is_swept(
    backend: DockerBackend,
    job: MakeJob,
    image: str,
    instance: Instance,
    client: docker.APIClient,
    engine: Engine,
) -> None:
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), image]
    with subprocess.Popen(  # noqa: ASYNC220  (no child of the event loop's)
        [*command, str(instance.directory), str(HOOK_ID)], stdout=subprocess.PIPE, text=True
    ) as victim:
        assert victim.stdout is not None
        owner = await anyio.to_thread.run_sync(victim.stdout.readline)
        label = f"{LABEL_INSTANCE}={owner.strip()}"
        found: list[dict[str, object]] = []
        while not found or found[0]["State"] != "running":
            found = await anyio.to_thread.run_sync(engine.labelled, label)
        assert await backend.sweep() == 0  # its owner lives
        victim.send_signal(signal.SIGKILL)
    client.wait(str(found[0]["Id"]), timeout=60)
    assert await backend.sweep() == 1
    assert engine.labelled(label) == []
    assert (await backend.run(job("true"))).ok


async def test_what_is_long_past_its_deadline_is_swept_whoever_made_it(
    backend: DockerBackend, client: docker.APIClient, image: str
) -> None:
    stranger = {LABEL_INSTANCE: "00000000-0", LABEL_DEADLINE: "1000000000"}
    alive = {LABEL_INSTANCE: "00000000-0", LABEL_DEADLINE: "99999999999"}
    containers = [
        client.create_container(image, command=["true"], labels=labels)["Id"]
        for labels in (stranger, alive)
    ]
    try:
        await backend.sweep()  # or another executor's, meanwhile: that is the rule's meaning
        left = {container["Id"] for container in client.containers(all=True)}
        assert left & set(containers) == {containers[1]}
    finally:
        client.remove_container(containers[1])


def test_threads_of_the_engine_end_with_the_backend(engine: Engine) -> None:
    assert engine.path
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith("container-removal")]
