"""Which mistakes would a run only show as the hook's own failure?

A script in ``args`` that nobody granted, a log directory that nobody may write, an interpreter
that the sandbox has not: each becomes a ``Finding`` with its remedy, before anything runs. Pure:
what the disk must tell comes through ``Look``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from executor.admission import SAFE_PATH
from executor.check.explanation import Explanation, Finding, Look, Weight
from executor.grants import grant_fault, inside
from executor.hints import addresses
from executor.plan import Files

_LONG_MS = 600_000
_PATH = re.compile(r"(?:--?[A-Za-z0-9_-]+=|@)?(/[^\s:]+)")
_OUTPUT_NAME = re.compile(
    r"LOG|OUT|AUDIT|DEST|STATE|CACHE|SPOOL|DATA|DIR|DUMP|TRACE", re.IGNORECASE
)
_SCRIPT_RUNNERS = re.compile(r"(?:.*/)?(?:(?:ba|da|z)?sh|python[0-9.]*|perl|ruby|node)")
_PLAIN_PATH = re.compile(r"/[^\s:]+")
_OWN_DEPTH = 3
"""/var/log is everybody's, /var/log/prx somebody's."""
_PRIVATE = ("/tmp", "/run/hook")  # noqa: S108  (the sandbox's own)
_OF_THE_SANDBOX = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/proc", "/dev"),
    *("/etc/passwd", "/etc/group", "/etc/alternatives", "/etc/localtime"),
)
"""What every sandbox has of its own; whether a program is there, ``Look.offers`` tells."""


def lint(hook: Explanation, files: Files, look: Look) -> Iterator[Finding]:
    """Every finding, in the order of the action's fields."""
    yield from _workspace(hook, look)
    yield from _command(hook, files, look)
    yield from _arguments(hook, look)
    yield from _variables(hook, look)
    yield from _remarks(hook)


def _workspace(hook: Explanation, look: Look) -> Iterator[Finding]:
    uid = hook.runs_as.uid
    for mount in hook.mounts:
        if not mount.directory or look.readable(mount.source, mount.source):
            continue
        weight = Weight.ERROR if inside(hook.cwd, mount.target) else Weight.WARNING
        message = (
            f"{mount.target} is shown, but hooks run as uid {uid}, which cannot read it; "
            f"run: chmod o+rx {mount.source}   or: setfacl -m u:{uid}:rx {mount.source}"
        )
        yield Finding(weight, hook.pointer, message)


def _command(hook: Explanation, files: Files, look: Look) -> Iterator[Finding]:
    if files.failure is not None:
        return
    policy = hook.subscription.policy.name
    if files.command_sha256 is None:
        if look.offers(files.command) is False:
            where = f" in PATH={SAFE_PATH}" if "/" not in files.command else ""
            message = f"the sandbox of policy {policy} has no {files.command}{where}"
            yield _error(hook, "/command", f"{message}; {_other_root()}")
        return
    interpreter = look.interpreter(files.command)
    if interpreter is None or hook.mount_of(interpreter) or look.offers(interpreter) is not False:
        return
    message = f"{files.command} is a script for {interpreter}, which the sandbox has not"
    yield _error(hook, "/command", f"{message}; {_other_root()}")


def _arguments(hook: Explanation, look: Look) -> Iterator[Finding]:
    action, policy = hook.subscription.hook.action, hook.subscription.policy
    for index, argument in enumerate(action.args):
        at = f"/args/{index}"
        found = _PATH.fullmatch(argument)
        if found is not None:
            script = index == 0 and bool(_SCRIPT_RUNNERS.fullmatch(action.command))
            yield from _argument(hook, look, found[1], f"args[{index}]", at, script=script)
        elif addresses((argument,)) and not policy.network.allow:
            message = (
                f'args[{index}] is a network address, and policy "{policy.name}" has no '
                "network.allow: the hook will fail at once (the egress proxy that would serve "
                "network.allow is not part of this version)"
            )
            yield _error(hook, at, message)


def _argument(
    hook: Explanation, look: Look, path: str, name: str, at: str, *, script: bool
) -> Iterator[Finding]:
    if any(inside(path, root) for root in _OF_THE_SANDBOX):
        return
    mount = hook.mount_of(path)
    if mount is None and hook.grants(path):
        return
    kind = look.kind(path)
    if kind is None:
        if script:
            yield _error(hook, at, f"`{path}` in `{name}` does not exist on this host")
        return
    if mount is None:
        message = f"`{path}` in `{name}` is not visible: add it to `filesystem.read`"
        yield _error(hook, at, message, read=path)
    source = path if mount is None else mount.source + path.removeprefix(mount.target)
    below = source if mount is None else mount.source
    if not look.readable(source, below):
        uid = hook.runs_as.uid
        message = (
            f"`{path}` in `{name}` cannot be read by uid {uid}, as which hooks run; "
            f"run: chmod o+r {source}   or: setfacl -m u:{uid}:r {source}"
        )
        yield _error(hook, at, message)


def _variables(hook: Explanation, look: Look) -> Iterator[Finding]:
    for name, value in hook.subscription.hook.action.env.items():
        if name in hook.stripped or not _PLAIN_PATH.fullmatch(value):
            continue
        if not any(inside(value, root) for root in _OF_THE_SANDBOX) and not _private(value, look):
            yield from _variable(hook, look, name, value)


def _variable(hook: Explanation, look: Look, name: str, value: str) -> Iterator[Finding]:
    at, kind = f"/env/{name}", look.kind(value)
    output = bool(_OUTPUT_NAME.search(name)) or kind is None
    mount = hook.mount_of(value)
    directory = _directory_for(name, value, kind)
    if mount is not None:
        if output and not mount.writable:
            message = (
                f"`{value}` in `{name}` is read-only; if the hook writes there, add "
                f"`{directory}` to `filesystem.write`"
            )
            yield Finding(Weight.WARNING, hook.pointer + at, message)
        return
    if hook.grants(value):
        return
    if not output:
        message = f"`{value}` in `{name}` is not visible: add it to `filesystem.read`"
        yield _error(hook, at, message, read=value)
        return
    fault = grant_fault(directory, workspace="", protected=())
    if fault is None and directory.count("/") < _OWN_DEPTH:
        fault = "is shared by the whole system: give the hook a directory of its own"
    if fault is not None:
        message = f"`{value}` in `{name}` is not visible, and `{directory}` {fault}"
        yield _error(hook, at, message)
        return
    message = (
        f"`{value}` in `{name}` is not visible: add `{directory}` to `filesystem.write` "
        "(or to `filesystem.read`, if the hook only reads there)"
    )
    yield _error(hook, at, message, write=directory)


def _private(path: str, look: Look) -> bool:
    """Whether the sandbox's own /tmp is meant: the host's has nothing by the first name in it."""
    for root in _PRIVATE:
        if inside(path, root):
            first = path.removeprefix(root).strip("/").partition("/")[0]
            return look.kind(f"{root}/{first}") is None
    return False


def _directory_for(name: str, value: str, kind: str | None) -> str:
    """Only directories can be granted writable: the path itself, or the one that holds it."""
    path = value.rstrip("/")
    parent, _, last = path.rpartition("/")
    if kind == "directory" or (kind is None and ("." not in last or name.endswith("DIR"))):
        return path
    return parent


def _remarks(hook: Explanation) -> Iterator[Finding]:
    subscription = hook.subscription
    action, pointer = subscription.hook.action, subscription.hook.pointer
    if hook.stripped:
        message = f"only the executor sets {', '.join(hook.stripped)}: not handed on"
        yield Finding(Weight.WARNING, f"{pointer}/env", message)
    # A default that the policy's limit clamps is no mistake of anybody's.
    if "timeout_ms" in action.model_fields_set and hook.timeout_ms < action.timeout_ms:
        message = f"{action.timeout_ms} ms is more than is allowed: {hook.timeout_ms} ms"
        yield Finding(Weight.WARNING, f"{pointer}/timeout_ms", message)
    if hook.timeout_ms > _LONG_MS:
        message = f"{hook.timeout_ms} ms are {hook.timeout_ms / 60000:.0f} minutes: is that meant?"
        yield Finding(Weight.WARNING, f"{pointer}/timeout_ms", message)


def _error(
    hook: Explanation, at: str, message: str, *, read: str | None = None, write: str | None = None
) -> Finding:
    return Finding(Weight.ERROR, hook.pointer + at, message, read, write)


def _other_root() -> str:
    return "name it by an absolute path on this host, or choose another sandbox image or root"
