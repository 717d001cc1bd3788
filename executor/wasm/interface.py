"""Does a component offer what a plugin must, and does it need more than we have?

Asked once, when it is compiled, of the component's type alone: nothing of the guest has run then.
Every answer names the export or import that is meant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from wasmtime import Engine
from wasmtime.component import (
    S64,
    U8,
    Bool,
    Component,
    ComponentInstanceType,
    EnumType,
    FuncType,
    ListType,
    OptionType,
    ResultType,
    String,
    TupleType,
    ValType,
)

INTERFACES = (
    "prx:plugin/hooks@0.1.0",
    "prx:plugin/hooks",
    "hooks",
    "prx:plugin/hook-exports@0.1.0",
    "prx:plugin/hook-exports",
    "hook-exports",
)
"""Accepted names of the exported interface, the preferred one first (SPEC section 4)."""
ON_EVENT, ON_GATE = "on-event", "on-gate"
LOG, CONFIG, KV = "log", "config", "kv"
_WANTED = {
    ON_EVENT: "func(event: string, payload-json: string) -> result<_, string>",
    ON_GATE: "func(event: string, payload-json: string) -> result<option<string>, string>",
}
_HOST: Mapping[str, Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    LOG: {"log": (("level, string", "string, string"), ("nothing",))},
    CONFIG: {
        "get": (("string",), ("option<string>",)),
        "get-all": (("",), ("list<tuple<string, string>>",)),
    },
    KV: {
        "get": (("string",), ("option<list<u8>>",)),
        "set": (("string, list<u8>",), ("result<_, string>", "nothing")),
        "delete": (("string",), ("result<bool, string>", "bool")),
        "list-keys": (("string",), ("list<string>",)),
        "increment": (("string, s64",), ("result<s64, string>", "s64")),
    },
}
"""``prx:host/…``: for each function the parameters and the results that we can serve. PRX's own
host and its WIT files differ in the results of kv; both are served."""


@dataclass(slots=True)
class Facts:
    """What is known of a component. ``faults`` are reasons not to load it."""

    interface: str = ""
    on_event: bool = False
    on_gate: bool = False
    imports: dict[str, str] = field(default_factory=dict)
    """The guest's own name of each prx:host interface that it imports, by log, config, kv."""
    wasi: bool = False
    http: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def kv(self) -> bool:
        return KV in self.imports


def inspect(component: Component, engine: Engine) -> Facts:
    """Everything that the type tells."""
    facts = Facts()
    _exports(component, engine, facts)
    for name, item in component.type.imports(engine).items():
        _import(name, _type(item), engine, facts)
    return facts


def host_interface(name: str) -> str | None:
    """log, config or kv for the name of a ``prx:host`` interface."""
    plain = name.removeprefix("prx:host/")
    plain, _, version = plain.partition("@")
    if name.startswith("prx:host/") and plain in _HOST and (version or "0.1.").startswith("0.1."):
        return plain
    return None


def _exports(component: Component, engine: Engine, facts: Facts) -> None:
    exports = component.type.exports(engine)
    found = {
        name: kind
        for name in INTERFACES
        if name in exports and isinstance(kind := _type(exports[name]), ComponentInstanceType)
    }
    if not found:
        there = ", ".join(sorted(exports)) or "nothing"
        facts.faults.append(f"exports no interface {INTERFACES[0]}; it exports {there}")
        return
    facts.interface, kind = next(iter(found.items()))
    functions = kind.exports(engine)
    for name, wanted in _WANTED.items():
        if name not in functions:
            continue
        function = _type(functions[name])
        given = spelled(function) if isinstance(function, FuncType) else "no function"
        if given != f"(string, string) -> {wanted.partition(' -> ')[2]}":
            facts.faults.append(f"{facts.interface}.{name} must be {wanted}; it is {given}")
    facts.on_event, facts.on_gate = ON_EVENT in functions, ON_GATE in functions
    if not facts.on_event and not facts.on_gate:
        facts.faults.append(f"{facts.interface} has no function {ON_EVENT}")


def _import(name: str, kind: object, engine: Engine, facts: Facts) -> None:
    host = host_interface(name)
    if host is not None and isinstance(kind, ComponentInstanceType):
        facts.imports[host] = name
        for function, item in kind.exports(engine).items():
            given = _type(item)
            if isinstance(given, FuncType) and not _served(host, function, given):
                facts.faults.append(
                    f"imports {name}.{function} as {spelled(given)}, which this "
                    "executor does not offer"
                )
    elif name.startswith("wasi:"):
        facts.wasi = True
        if name.startswith("wasi:http/"):
            facts.http.append(name)
    elif name.startswith("prx:host/events"):
        facts.faults.append(f"imports {name}: publishing from a plugin is not supported")
    elif name.startswith("prx:host/http"):
        facts.faults.append(f"imports {name}: http from a plugin is not supported")
    else:
        facts.faults.append(f"imports {name}, which nothing here offers")


def _served(host: str, function: str, given: FuncType) -> bool:
    if function not in _HOST[host]:
        return False
    parameters, results = _HOST[host][function]
    there = [kind for _, kind in given.params]
    if host == LOG and there and isinstance(there[0], EnumType):
        text = ", ".join(("level", *(_name(kind) for kind in there[1:])))
    else:
        text = ", ".join(_name(kind) for kind in there)
    result = given.result
    return text in parameters and ("nothing" if result is None else _name(result)) in results


def spelled(function: FuncType) -> str:
    """A function's type as WIT would write it, without the names of its parameters."""
    parameters = ", ".join(_name(kind) for _, kind in function.params)
    result = function.result
    return f"({parameters})" + ("" if result is None else f" -> {_name(result)}")


def _name(kind: ValType) -> str:
    if isinstance(kind, ListType):
        return f"list<{_name(kind.element)}>"
    if isinstance(kind, OptionType):
        return f"option<{_name(kind.payload)}>"
    if isinstance(kind, TupleType):
        return f"tuple<{', '.join(_name(one) for one in kind.elements)}>"
    if isinstance(kind, ResultType):
        ok, error = kind.ok, kind.err
        if error is None:
            return "result" if ok is None else f"result<{_name(ok)}>"
        return f"result<{'_' if ok is None else _name(ok)}, {_name(error)}>"
    for plain, name in ((String, "string"), (Bool, "bool"), (U8, "u8"), (S64, "s64")):
        if isinstance(kind, plain):
            return name
    return type(kind).__name__.removesuffix("Type").lower()


def _type(item: object) -> object:
    """Wasmtime 49 wrapped types into ComponentExtern."""
    return getattr(item, "ty", item)
