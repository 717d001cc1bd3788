"""What can a policy say?

One frozen model for each section of a ``policies/*.toml`` (SPEC 3.1). The defaults are the values
of ``default``. Each field's description ends with the rule by which two policies meet ("Stricter:
…"); ``policy_merge`` carries exactly these rules out, and a test holds the two together.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from executor.admission import command_faults
from executor.document import LISTED
from executor.grants import path_fault
from executor.sizes import Bytes

MIB, GIB = 1024**2, 1024**3
MAX_TIMEOUT_MS = 24 * 60 * 60 * 1000

_STRICT = ConfigDict(frozen=True, strict=True, extra="forbid")
_IMAGE = re.compile(
    r"[a-z0-9][a-z0-9._-]{0,63}|sha256:[0-9a-f]{64}|[^\s@]{1,255}@sha256:[0-9a-f]{64}"
)
_HOST = re.compile(r"(\*\.)?[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]")


def _image(text: str) -> str:
    if not _IMAGE.fullmatch(text):
        raise ValueError(
            "must be a name from sandbox-images/, an image id (sha256:…) or name@sha256:…; "
            "a tag may change its meaning"
        )
    return text


def _path(text: str) -> str:
    if (fault := path_fault(text)) is not None:
        raise ValueError(fault)
    parts = [part for part in text.split("/") if part not in ("", ".")]
    plain: list[str] = []
    for part in parts:
        plain = plain[:-1] if part == ".." else [*plain, part]
    return ("/" if text.startswith("/") else "") + "/".join(plain) or "."


def _endpoint(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not _HOST.fullmatch(host) or not re.fullmatch(r"[1-9]\d{0,4}", port) or int(port) > 65535:
        raise ValueError('must be "host:port", like "hooks.example.com:443"')
    return text.lower()


def _command_glob(text: str) -> str:
    faults = command_faults(text.replace("*", "x"))
    if faults:
        raise ValueError("; ".join(faults))
    return text


Path = Annotated[str, AfterValidator(_path)]
Paths = Annotated[tuple[Path, ...], LISTED]
Endpoints = Annotated[tuple[Annotated[str, AfterValidator(_endpoint)], ...], LISTED]
CommandGlobs = Annotated[tuple[Annotated[str, AfterValidator(_command_glob)], ...], LISTED]


class SandboxSection(BaseModel):
    """``[sandbox]``: which walls."""

    model_config = _STRICT

    backend: Literal["auto", "docker", "namespace"] = Field(
        default="auto",
        description="Where it runs. Stricter: the named one over auto; two different named ones "
        "are refused.",
    )
    image: Annotated[str, AfterValidator(_image)] = Field(
        default="python",
        description="For docker: a name from sandbox-images/, an image id, or name@sha256:…. "
        "Stricter: the bound policy's (images have no order).",
    )
    root: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")] = Field(
        default="host",
        description='For namespace: "host" (its /usr) or a name from sandbox-images/. '
        "Stricter: the bound policy's.",
    )
    runtime: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{0,64}$")] = Field(
        default="",
        description="For docker: runc, runsc, kata; empty is the engine's default. "
        "Stricter: the named one over the default; two different named ones are refused.",
    )
    warm: Annotated[int, Field(ge=0, le=64)] = Field(
        default=0, description="Cells prepared ahead. Stricter: the smaller number."
    )


class FilesystemSection(BaseModel):
    """``[filesystem]``: what is shown, and what can be written."""

    model_config = _STRICT

    workspace: Literal["none", "ro"] = Field(
        default="ro", description="The workspace, read-only, or hidden. Stricter: none."
    )
    read: Paths = Field(
        default=(),
        description="Paths shown read-only at their own place, absolute or relative to the "
        "workspace. Stricter: what both grant; of two nested paths the inner one.",
    )
    write: Paths = Field(
        default=(),
        description="Directories that can be written. Stricter: what both grant; of two nested "
        "paths the inner one.",
    )
    tmp: Annotated[Bytes, Field(ge=4096, le=64 * GIB)] = Field(
        default=16 * MIB, description="Size of the private /tmp. Stricter: the smaller."
    )


class NetworkSection(BaseModel):
    """``[network]``: where it may connect to."""

    model_config = _STRICT

    allow: Endpoints = Field(
        default=(),
        description='"host:port"; empty is no network at all. Stricter: what both allow.',
    )


class LimitsSection(BaseModel):
    """``[limits]``: how much of everything. Sizes in bytes."""

    model_config = _STRICT

    enforce: Literal["best", "cgroup"] = Field(
        default="best",
        description="cgroup: refuse where no cgroup can be had; best: then use rlimits and say "
        "so. Stricter: cgroup.",
    )
    memory: Annotated[Bytes, Field(ge=6 * MIB, le=1024 * GIB)] = Field(
        default=128 * MIB, description="Memory, with no swap. Stricter: the smaller."
    )
    pids: Annotated[int, Field(ge=2, le=32768)] = Field(
        default=64, description="Processes and threads at once. Stricter: the smaller."
    )
    cpus: Annotated[float, Field(ge=0.01, le=1024)] = Field(
        default=1.0, description="Cores. Stricter: the smaller."
    )
    file_size: Annotated[Bytes, Field(ge=0, le=1024 * GIB)] = Field(
        default=16 * MIB, description="Of one written file. Stricter: the smaller."
    )
    open_files: Annotated[int, Field(ge=16, le=1048576)] = Field(
        default=256, description="Descriptors of one process. Stricter: the smaller."
    )
    output: Annotated[Bytes, Field(ge=0, le=16 * MIB)] = Field(
        default=64 * 1024,
        description="Captured of stdout and of stderr each; more is counted and dropped. "
        "Stricter: the smaller.",
    )
    timeout_ms: Annotated[int, Field(ge=1, le=MAX_TIMEOUT_MS)] = Field(
        default=300_000,
        description="Milliseconds; no action gets more. Stricter: the smaller.",
    )


class EnvironmentSection(BaseModel):
    """``[environment]``."""

    model_config = _STRICT

    home: bool = Field(
        default=False,
        description="HOME is set, to a private directory on the tmpfs. Stricter: false.",
    )


class BusSection(BaseModel):
    """``[bus]``."""

    model_config = _STRICT

    emit: bool = Field(
        default=False,
        description="The hook may emit events through ZERO_HOOK_EMIT_FD. Stricter: false.",
    )


class CommandsSection(BaseModel):
    """``[commands]``."""

    model_config = _STRICT

    allow: CommandGlobs = Field(
        default=("*",),
        description="Globs on the resolved command; a star stands for any characters, / too. "
        "Stricter: what both allow; of two globs the narrower one, and neither if they only "
        "overlap.",
    )


class GateSection(BaseModel):
    """``[gate]``."""

    model_config = _STRICT

    on_failure: Literal["block", "continue"] = Field(
        default="block",
        description="What a hook that gave no clean verdict means. Stricter: block.",
    )


class Policy(BaseModel):
    """One named profile. Frozen; sizes are bytes, times milliseconds."""

    model_config = _STRICT

    name: str = Field(description="As the file is called, without .toml. Two that meet: a+b.")
    description: str = Field(default="", max_length=1000, description="One sentence for people.")
    sandbox: SandboxSection = SandboxSection()
    filesystem: FilesystemSection = FilesystemSection()
    network: NetworkSection = NetworkSection()
    limits: LimitsSection = LimitsSection()
    environment: EnvironmentSection = EnvironmentSection()
    bus: BusSection = BusSection()
    commands: CommandsSection = CommandsSection()
    gate: GateSection = GateSection()
