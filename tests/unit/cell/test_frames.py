"""Both ends read what the other writes, and neither trusts a byte of it."""

from __future__ import annotations

import contextlib
import random
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from executor.cell import protocol
from executor.job import Job, Limits, Mount, Sandbox
from tests.unit.cell.conftest import SOURCES, compile_with_sanitizers

SECCOMP = struct.pack("<HBBI", 6, 0, 0, 0x7FFF0000)
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
PATH = TEXT.map(lambda text: f"/{text}")
NUMBER = st.integers(0, 2**63 - 1)
MOUNT = st.builds(Mount, PATH, PATH, NUMBER, NUMBER, st.booleans(), st.booleans())
LIMITS = st.builds(
    Limits, NUMBER, NUMBER, st.just(1.0), NUMBER, st.integers(1, 2**31), NUMBER,
    st.integers(0, 1 << 20),
)  # fmt: skip
SANDBOX = st.builds(
    Sandbox, NUMBER, NUMBER, LIMITS, st.lists(MOUNT, max_size=9).map(tuple), root=TEXT
)
JOB = st.builds(
    Job,
    run_id=st.just("r"),
    sandbox=SANDBOX,
    command=TEXT.filter(bool),
    argv=st.lists(TEXT, min_size=1, max_size=20).map(tuple),
    env=st.lists(st.tuples(TEXT.filter(bool), TEXT), max_size=20).map(tuple),
    cwd=TEXT,
    timeout_seconds=st.floats(0.001, 300),
    payload=st.binary(max_size=3000),
    stdin=st.booleans(),
)


@pytest.fixture(scope="module")
def parser(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("parser") / "parse"
    return compile_with_sanitizers(output, Path(__file__).parent / "parse.c", SOURCES / "frames.c")


def parsed(parser: Path, cases: list[bytes]) -> str:
    """What the cell makes of each, one letter a case."""
    data = b"".join(struct.pack("=I", len(case)) + case for case in cases)
    answer = subprocess.run([parser], input=data, capture_output=True, check=False)
    assert answer.returncode == 0, answer.stderr.decode(errors="replace")
    return answer.stdout.decode()


@settings(max_examples=60, deadline=None)
@given(job=JOB)
def test_the_cell_reads_every_frame_that_the_executor_writes(parser: Path, job: Job) -> None:
    build = protocol.build_frame(job.sandbox, tasks=("/a/tasks",), leaf="/b")
    assert parsed(parser, [build, protocol.job_frame(job, seccomp=SECCOMP)]) == "BJ"


def test_the_cell_survives_any_bytes(parser: Path) -> None:
    chance = random.Random(20260321)
    limits = Limits(1, 2, 1.0, 4, 5, 6, 7)
    mounts = (Mount("/a", "/b", 1, 2, True), Mount("/c", "/d/e", 3, 4, False))
    sandbox = Sandbox(1000, 1000, limits, mounts)
    job = Job("r", sandbox, "true", ("true", "x"), (("A", "b"),), "/", 1.0, b"payload")
    seeds = [protocol.build_frame(sandbox), protocol.job_frame(job, seccomp=SECCOMP * 3)]
    cases = [_mutated(chance, chance.choice(seeds)) for _ in range(20_000)]
    answers = parsed(parser, cases)
    assert len(answers) == len(cases)
    assert set(answers) == {"B", "J", "-"}


def _mutated(chance: random.Random, seed: bytes) -> bytes:
    data = bytearray(seed)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(5):
            case 0:
                data[at : at + 1] = chance.randbytes(1)
            case 1:
                del data[at : at + chance.randint(1, 20)]
            case 2:
                data[at:at] = chance.randbytes(chance.randint(1, 20))
            case 3:
                wild = chance.choice([0, 1, 255, 2**31, 2**32 - 1, len(data)])
                data[at : at + 4] = struct.pack("<I", wild)
            case _:
                data[at:at] = data[: chance.randrange(len(data) + 1)]
    return bytes(data)


@pytest.mark.parametrize(
    "body",
    [
        protocol.field(b"u", b"1234567"),
        protocol.field(b"r", b"a\0b"),
        protocol.field(b"r", "") + protocol.field(b"r", ""),
        protocol.field(b"m", b"x" * 10),
        protocol.field(b"m", b"x" * 17 + b"/a\0relative\0"),
        protocol.field(b"m", b"x" * 17 + b"/a\0/b\0/c\0"),
        protocol.field(b"?", ""),
        b"r\xff\xff\xff\xff",
        b"r",
        b"",
    ],
)
def test_a_build_with_one_bad_field_is_refused(parser: Path, body: bytes) -> None:
    good = protocol.field(b"r", "") if b"r" not in body[:1] and body else b""
    assert parsed(parser, [protocol.frame(protocol.BUILD, good + body)]) == "-"


@settings(deadline=None)
@given(frames=st.lists(st.tuples(st.sampled_from([b"1", b"2", b"X"]), st.binary(max_size=300))),
       cuts=st.randoms(use_true_random=False))  # fmt: skip
def test_frames_come_whole_however_the_stream_is_cut(
    frames: list[tuple[bytes, bytes]], cuts: random.Random
) -> None:
    stream = b"".join(protocol.frame(kind, body) for kind, body in frames)
    parser = protocol.FrameParser()
    seen: list[tuple[bytes, bytes]] = []
    while stream:
        size = cuts.randint(1, 40)
        seen += parser.feed(stream[:size])
        stream = stream[size:]
    assert seen == frames


@given(data=st.binary(max_size=400))
def test_no_reply_raises_anything_but_a_protocol_error(data: bytes) -> None:
    for decode in (protocol.decode_exit, protocol.decode_ready):
        with contextlib.suppress(protocol.ProtocolError):
            decode(data)
