"""What does a plugin cost, beside Extism's Python SDK with a fresh plugin for each call?

The guest is tiny and the same job in both: take an event, say ok. Ours goes the whole road: emit,
match, queue, a worker process, a fresh store, a record. Extism (where ``pip install extism`` was
made) runs in this process, without a sandbox, a record or a deadline of its own.
"""

from __future__ import annotations

import importlib
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
from wasmtime import wat2wasm

from benchmarks.table import Row, median_of, microseconds, milliseconds
from executor import Executor
from executor.disk.identity import identity_for
from executor.disk.workspace import open_workspace
from executor.wasm.cache import Cache
from executor.wasm.loader import PluginSet

PAYLOAD = {"tool": "bash", "success": True, "output": "ok" * 100}
MANIFEST = """[plugin]
name = "tiny"
version = "1"
[[capabilities]]
type = "hook"
events = ["tool_call"]
"""
COMPONENT = """(component
  (core module $m
    (memory (export "memory") 1)
    (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
    (func (export "on-event") (param i32 i32 i32 i32) (result i32) (i32.const 0)))
  (core instance $i (instantiate $m))
  (alias core export $i "memory" (core memory $mem))
  (alias core export $i "cabi_realloc" (core func $realloc))
  (alias core export $i "on-event" (core func $on-event))
  (type $t (func (param "event" string) (param "payload-json" string)
    (result (result (error string)))))
  (func $f (type $t) (canon lift (core func $on-event) (memory $mem) (realloc $realloc)))
  (instance $e (export "on-event" (func $f)))
  (export "prx:plugin/hooks@0.1.0" (instance $e)))"""
EXTISM_MODULE = (
    '(module (memory (export "memory") 1) (func (export "on_event") (result i32) i32.const 0))'
)
ONE_AT_A_TIME, BURST, BURSTS = 2000, 500, 8


def rows() -> Sequence[Row]:
    """One event, a burst, and loading."""
    with tempfile.TemporaryDirectory() as directory:
        workspace = Path(directory) / "workspace"
        folder = workspace / "plugins" / "tiny"
        folder.mkdir(parents=True)
        (folder / "plugin.toml").write_text(MANIFEST, encoding="utf-8")
        (folder / "plugin.wasm").write_bytes(bytes(wat2wasm(COMPONENT)))
        (workspace / "config.toml").write_text(
            f'[state]\ndir = "{directory}/state"\n', encoding="utf-8"
        )
        median, rate = anyio.run(_road, workspace)
        load = anyio.run(_load, workspace, Path(directory) / "state" / "wasm")
    extism = _extism()
    beside = "extism: not installed" if extism is None else f"extism: {microseconds(extism)}"
    beside_rate = "" if extism is None else f"extism: {1 / extism:.0f} /s"
    return [
        Row(
            "one event for a tiny plugin, fresh store, the whole road",
            microseconds(median),
            beside,
            None if extism is None else median / extism,
            "≤ 1 ms",
            median <= 1e-3,
        ),
        Row("events a second, a burst of them", f"{rate:.0f} /s", beside_rate, None, "≥ 1500 /s",
            rate >= 1500),
        Row("load a compiled plugin", milliseconds(load), "", None, "≤ 10 ms", load <= 10e-3),
    ]  # fmt: skip


async def _road(workspace: Path) -> tuple[float, float]:
    async with Executor.open(workspace) as executor:
        taken, rates = [], []
        for number in range(ONE_AT_A_TIME + 200):
            began = time.perf_counter()
            await executor.emit("tool_call", PAYLOAD, session_id="s").wait()
            if number >= 200:
                taken.append(time.perf_counter() - began)
        for _ in range(BURSTS):
            began = time.perf_counter()
            for _ in range(BURST):
                executor.emit("tool_call", PAYLOAD, session_id="s")
            await executor.drain()
            rates.append(BURST / (time.perf_counter() - began))
        return statistics.median(taken), statistics.median(rates)


async def _load(workspace: Path, cache: Path) -> float:
    """From the folder to a plugin that serves, with its code in the cache."""
    place = open_workspace(workspace)
    taken = []
    try:
        for _ in range(20):
            began = time.perf_counter()
            found = await PluginSet.open(place, Cache(cache, identity_for(place.status, "")))
            taken.append(time.perf_counter() - began)
            assert all(plugin.serves for plugin in found.plugins)
    finally:
        place.close()
    return statistics.median(taken)


def _extism() -> float | None:
    """A fresh plugin from a compiled one, one call; None where it is not installed."""
    call = _extism_call()
    return None if call is None else median_of(call, times=500, warm_up=20)


def _extism_call() -> Callable[[], object] | None:
    try:
        extism: Any = importlib.import_module("extism.extism")  # not everybody has it
    except ImportError:
        return None
    compiled = extism.CompiledPlugin(
        {"wasm": [{"data": bytes(wat2wasm(EXTISM_MODULE))}]}, wasi=False
    )
    data = b'{"event":"tool_call","payload":{}}'
    return lambda: extism.Plugin(compiled).call("on_event", data)
