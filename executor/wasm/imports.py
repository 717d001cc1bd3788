"""What can a guest ask of its host, beside WASI?

PRX's ``prx:host`` interfaces ``log``, ``config`` and ``kv``. They open nothing: log lines go where
the guest's stderr goes, config is the manifest's own, and the key-value store lives with the
executor, bounded, one for each plugin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from wasmtime import Engine, WasmtimeError
from wasmtime.component import (
    Component,
    ComponentInstanceType,
    FuncType,
    LinkerInstance,
    ResultType,
)

from executor.wasm.interface import CONFIG, KV, LOG, Facts

Ask = Callable[[str, str, bytes], tuple[bool, bytes]]
"""(question, key, value) → whether there is an answer, and the answer."""
Function = Callable[..., object]


class Host(Protocol):
    """Whom a guest's calls reach."""

    @property
    def config(self) -> Mapping[str, str]: ...

    def ask(self, question: str, key: str, value: bytes) -> tuple[bool, bytes]: ...

    def log(self, level: str, message: str) -> None: ...


class Capture:
    """stdout and stderr of one call, at most ``limit`` bytes each; the rest is counted."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.kept = (bytearray(), bytearray())
        self.seen = [0, 0]

    def stdout(self, data: bytes) -> None:
        self._take(0, data)

    def stderr(self, data: bytes) -> None:
        self._take(1, data)

    def _take(self, stream: int, data: bytes) -> None:
        self.seen[stream] += len(data)
        room = self._limit - len(self.kept[stream])
        if room > 0:
            self.kept[stream].extend(data[:room])


def add_imports(
    root: LinkerInstance, component: Component, engine: Engine, facts: Facts, host: Host | None
) -> None:
    """Define what the component imports of ``prx:host``; without ``host`` calls would fail."""
    if not facts.imports:
        return
    types = component.type.imports(engine)
    for kind, name in facts.imports.items():
        offered = _MAKERS[kind](host) if host is not None else {}
        interface = getattr(types[name], "ty", types[name])
        if not isinstance(interface, ComponentInstanceType):
            continue
        with root.add_instance(name) as instance:
            for function, item in interface.exports(engine).items():
                given = getattr(item, "ty", item)
                if isinstance(given, FuncType):
                    fallible = isinstance(given.result, ResultType)
                    instance.add_func(function, _wrapped(offered.get(function), fallible=fallible))


class Failed(Exception):
    """A host function has no answer but a message."""


def _wrapped(function: Function | None, *, fallible: bool) -> Function:
    """Without the store; a failure is ``err`` where the guest's type has room for it, else a trap.

    PRX's own host and its WIT files disagree on which functions of kv can fail. Only WasmtimeError
    may leave: wasmtime keeps any other exception in a global, for the next call to trip over.
    """

    def call(_: object, *arguments: object) -> object:
        if function is None:
            raise WasmtimeError("nothing of the guest may run now")
        try:
            return function(*arguments)
        except Failed as failure:
            if fallible:
                return str(failure)
            raise WasmtimeError(str(failure)) from None
        except Exception as failure:
            raise WasmtimeError(f"{type(failure).__name__}: {failure}") from failure

    return call


def _log(host: Host) -> dict[str, Function]:
    return {"log": host.log}


def _config(host: Host) -> dict[str, Function]:
    return {"get": host.config.get, "get-all": lambda: list(host.config.items())}


def _kv(host: Host) -> dict[str, Function]:
    def ask(question: str, key: str, value: bytes = b"") -> tuple[bool, bytes]:
        found, answer = host.ask(question, key, value)
        if not found and answer:
            raise Failed(answer.decode("utf-8", "replace"))
        return found, answer

    def get(key: str) -> bytes | None:
        found, value = ask("get", key)
        return value if found else None

    def put(key: str, value: bytes | list[int]) -> None:
        ask("set", key, bytes(value))

    def delete(key: str) -> bool:
        return ask("delete", key)[0]

    def list_keys(prefix: str) -> list[str]:
        _, joined = ask("list-keys", prefix)
        return joined.decode().split("\0") if joined else []

    def increment(key: str, by: int) -> int:
        return int(ask("increment", key, str(by).encode())[1])

    return {
        "get": get,
        "set": put,
        "delete": delete,
        "list-keys": list_keys,
        "increment": increment,
    }


_MAKERS: Mapping[str, Callable[[Host], dict[str, Function]]] = {
    LOG: _log,
    CONFIG: _config,
    KV: _kv,
}
