"""How does a component become native code, and what do we learn of it on the way?

One process for one component, since compiling takes seconds and hundreds of megabytes, confined as
the workers are, since the bytes are nobody's to trust: the component is on descriptor 0, the native
code goes to descriptor 3, one JSON object to descriptor 1. Nothing of the guest runs: linking is
tried in a store whose time is up before it begins.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from dataclasses import asdict

from wasmtime import Engine, Store, WasiConfig, WasmtimeError
from wasmtime.component import Component

from executor.wasm.confine import Orders, confine
from executor.wasm.guest import link, make_engine
from executor.wasm.interface import Facts, inspect

NATIVE_DESCRIPTOR = 3
MEMORY_BYTES = 3 * 1024**3
CPU_SECONDS = 600
OPEN_FILES = 64
_MODULE = b"\x00asm\x01\x00\x00\x00"
_MAGIC = b"\x00asm"


def main() -> None:
    """Compile what descriptor 0 holds; the one argument tells whom to become (``cache``)."""
    orders = json.loads(sys.argv[1])
    os.nice(10)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    limit = CPU_SECONDS if hard < 0 else min(CPU_SECONDS, hard)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    confine(
        Orders(
            uid=orders["uid"],
            gid=orders["gid"],
            data_bytes=MEMORY_BYTES,
            open_files=OPEN_FILES,
            seccomp=bytes.fromhex(orders["seccomp"]),
            with_parent=False,
        )
    )
    with os.fdopen(0, "rb") as source:
        facts = _compile(source.read())
    sys.stdout.write(json.dumps(asdict(facts)))
    sys.stdout.flush()


def _compile(wasm: bytes) -> Facts:
    fault = _first_look(wasm)
    if fault is not None:
        return Facts(faults=[fault])
    engine = make_engine()
    try:
        component = Component(engine, wasm)
    except WasmtimeError as failure:
        lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
        return Facts(faults=[f"is no valid component: {lines[-1]}"])
    facts = inspect(component, engine)
    if not facts.faults:
        facts.faults += _link_faults(component, engine, facts)
    if not facts.faults:
        with os.fdopen(NATIVE_DESCRIPTOR, "wb") as native:
            native.write(component.serialize())
    return facts


def _first_look(wasm: bytes) -> str | None:
    """The mistakes that deserve better words than a parser's."""
    if not wasm.startswith(_MAGIC):
        return "is no WebAssembly (text has to be encoded first, native code is never loaded)"
    if wasm.startswith(_MODULE):
        return (
            "is a core module, not a component: build it for the component model "
            "(componentize-py, jco, cargo component, or wasm-tools component new)"
        )
    return None


def _link_faults(component: Component, engine: Engine, facts: Facts) -> list[str]:
    try:
        linker = link(engine, component, facts, None)
        with Store(engine) as store:
            if facts.wasi:
                store.set_wasi(WasiConfig())
                store.set_wasi_http()
            # No epoch deadline is set: guest code traps at its first instruction.
            linker.instantiate(store, component)
    except WasmtimeError as failure:
        text = str(failure)
        if "wasm trap: interrupt" in text:
            return []
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return ["; ".join(dict.fromkeys((lines[0], lines[-1])))]
    return []
