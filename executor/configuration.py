"""What does the workspace's configuration say, and may it?

Reads config.toml, hooks.json and the policies, each through one descriptor, and refuses a file
that somebody else could have written (SPEC section 2): it must belong to the user who runs the
executor or to root, and not be writable by others. When root runs it, hooks.json and plugins may
belong to the workspace's owner. All faults of a file are reported at once.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from executor.disk.workspace import Workspace
from executor.errors import InvalidConfig
from executor.hooks import Hook, parse_hooks
from executor.paths import data_directory
from executor.permission.decide import Permission
from executor.policy import Policy, RawPolicy, parse_policy, resolve_policies
from executor.settings import Settings, parse_settings

HOOKS_FILE, SETTINGS_FILE, POLICIES_DIRECTORY = "hooks.json", "config.toml", "policies"
_MAX_FILE_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Configuration:
    """One consistent reading of everything that is configured."""

    settings: Settings
    policies: Mapping[str, Policy]
    hooks: tuple[Hook, ...]


def load_configuration(workspace: Workspace) -> Configuration:
    """Read it all. Raises InvalidConfig (with every fault of the first broken file)."""
    settings = load_settings(workspace)
    return Configuration(
        settings=settings,
        policies=load_policies(workspace),
        hooks=load_hooks(workspace, settings),
    )


def load_settings(workspace: Workspace) -> Settings:
    """config.toml, or the defaults where there is none. Raises InvalidConfig."""
    data = _read(workspace, SETTINGS_FILE, owned_by_workspace=False)
    settings = parse_settings(b"" if data is None else data, where=SETTINGS_FILE)
    Permission.compile(settings.permission, workspace=workspace.path)
    return settings


def load_hooks(workspace: Workspace, settings: Settings) -> tuple[Hook, ...]:
    """hooks.json, or nothing where there is none. Raises InvalidConfig."""
    data = _read(workspace, HOOKS_FILE, owned_by_workspace=True)
    if data is None:
        return ()
    return parse_hooks(data, where=HOOKS_FILE, max_timeout_ms=settings.limits.max_timeout_ms)


def load_policies(workspace: Workspace) -> dict[str, Policy]:
    """The shipped policies and the workspace's own. Raises InvalidConfig."""
    return resolve_policies(shipped_policies(), _workspace_policies(workspace))


def shipped_policies() -> dict[str, RawPolicy]:
    """The policies that come with the program."""
    result = {}
    for path in sorted(data_directory("policies").glob("*.toml")):
        result[path.stem] = parse_policy(path.read_bytes(), where=f"policies/{path.name}")
    return result


def ownership_fault(
    status: os.stat_result, *, runner: int, workspace_owner: int, owned_by_workspace: bool
) -> str | None:
    """Why a configuration file with this owner and mode cannot be trusted; None where it can."""
    trusted = {runner, 0}
    if owned_by_workspace and runner == 0:
        trusted.add(workspace_owner)
    if status.st_uid not in trusted:
        return (
            f"it belongs to uid {status.st_uid}, not to uid {runner} who runs this; "
            f"whoever can write it decides what runs. Look at it, then: chown {runner}"
        )
    if status.st_mode & stat.S_IWOTH or (
        status.st_mode & stat.S_IWGRP and status.st_gid != status.st_uid
    ):
        return "others may write it, and would decide what runs; run: chmod go-w"
    return None


def _workspace_policies(workspace: Workspace) -> dict[str, RawPolicy]:
    try:
        directory = os.open(
            POLICIES_DIRECTORY,
            os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC,
            dir_fd=workspace.descriptor,
        )
    except FileNotFoundError:
        return {}
    except OSError as failure:
        raise InvalidConfig(str(failure.strerror), where=POLICIES_DIRECTORY) from failure
    try:
        if os.path.samestat(os.fstat(directory), data_directory("policies").stat()):
            return {}  # in the program's own repository: these are the shipped ones
        _check(os.fstat(directory), workspace, POLICIES_DIRECTORY, owned_by_workspace=False)
        result = {}
        for name in sorted(os.listdir(directory)):
            if not name.endswith(".toml") or name.startswith("."):
                continue
            where = f"{POLICIES_DIRECTORY}/{name}"
            data = _read(workspace, where, owned_by_workspace=False)
            if data is not None:
                result[Path(name).stem] = parse_policy(data, where=where)
        return result
    finally:
        os.close(directory)


def _read(workspace: Workspace, name: str, *, owned_by_workspace: bool) -> bytes | None:
    """A file's bytes, None where it is absent. O_NONBLOCK: a FIFO must not hang the start."""
    try:
        descriptor = os.open(
            name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=workspace.descriptor
        )
    except FileNotFoundError:
        return None
    except OSError as failure:
        raise InvalidConfig(f"cannot be read: {failure.strerror}", where=name) from failure
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise InvalidConfig("it is no regular file", where=name)
        _check(status, workspace, name, owned_by_workspace=owned_by_workspace)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except OSError as failure:
        raise InvalidConfig(f"cannot be read: {failure.strerror}", where=name) from failure
    finally:
        os.close(descriptor)
    if len(data) > _MAX_FILE_BYTES:
        raise InvalidConfig(f"it is larger than {_MAX_FILE_BYTES} bytes", where=name)
    return data


def _check(
    status: os.stat_result, workspace: Workspace, name: str, *, owned_by_workspace: bool
) -> None:
    fault = ownership_fault(
        status,
        runner=os.geteuid(),
        workspace_owner=workspace.status.st_uid,
        owned_by_workspace=owned_by_workspace,
    )
    if fault is not None:
        raise InvalidConfig(fault, where=os.path.join(workspace.path, name))
