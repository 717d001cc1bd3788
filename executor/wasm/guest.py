"""How does one event meet one guest?

Theory of operation
-------------------
A fresh Store for each event, closed after it: nothing a guest leaves behind, no trap and no memory
reaches the next event. What can be shared is: the engine, the component and its linker. Time is
limited by epochs (a thread adds one every ``TICK_SECONDS`` while anything runs), so that an endless
loop traps; a guest that waits *inside* a host call is not reached by that, and is the executor's to
kill. Fuel would double the cost of every guest.

wasmtime's Python API has no trap codes for components, so the last line of an error's text is what
classifies it; the texts are those of wasmtime 48 to 50.

Rules for editors: whoever links WASI must give each Store a WasiConfig, else the first WASI call
aborts the process; the same holds for wasi:http. ``wasi:http`` asks nobody's permission once it is
linked, so its ``handle`` is shadowed, under the guest's own name for it.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

from wasmtime import Config, Engine, ExitTrap, Store, WasiConfig, WasmtimeError
from wasmtime.component import Component, ExportIndex, Instance, Linker, Variant

from executor.wasm.imports import Ask, Capture, add_imports
from executor.wasm.interface import ON_EVENT, ON_GATE, Facts
from executor.wasm.wire import MAX_MESSAGE_BYTES, End

TICK_SECONDS = 0.01
IDLE_TICKS = 100
"""So long the clock goes on after the last call, before it sleeps."""
MEMORIES, TABLES, INSTANCES, TABLE_ELEMENTS = 3, 16, 128, 100_000
"""Enough for every toolchain that was tried, and no more: a memory's limit is per memory."""
STACK_BYTES = 512 * 1024
SLACK_BYTES = 64 * 1024 * 1024
"""What the process itself may need beside a guest's memories."""
COPIES = 4
"""Of a string on its way in or out: a message may be as large as the guest's memory."""
_PAGE = os.sysconf("SC_PAGE_SIZE")
_FULL = 7 / 8


def make_engine() -> Engine:
    """The one configuration: native code fits only the engine that it was compiled for."""
    config = Config()
    config.epoch_interruption = True
    config.max_wasm_stack = STACK_BYTES
    return Engine(config)


class Clock:
    """Advances the engine's epoch while something runs."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._wake = threading.Event()
        self._running = False
        self._quiet = 0
        threading.Thread(target=self._tick, daemon=True).start()

    def start(self) -> None:
        """A call begins."""
        self._running = True
        if not self._wake.is_set():
            self._wake.set()

    def stop(self) -> None:
        """It ended."""
        self._running = False

    def _tick(self) -> None:
        while True:
            self._wake.wait()
            time.sleep(TICK_SECONDS)
            self._engine.increment_epoch()
            self._quiet = 0 if self._busy() else self._quiet + 1
            if self._quiet > IDLE_TICKS:
                self._wake.clear()
                # A call may have begun between the look and the clearing.
                if self._busy():
                    self._wake.set()

    def _busy(self) -> bool:
        return self._running


class Gauge:
    """How much memory this process has, and how much it may get."""

    def __init__(self) -> None:
        self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)

    def data_bytes(self) -> int:
        """Private writable memory, stacks included (proc_pid_statm(5))."""
        return int(os.pread(self._statm, 256, 0).split()[5]) * _PAGE

    def allow(self, size_bytes: int) -> None:
        """From now on at most so much (RLIMIT_DATA, setrlimit(2))."""
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        soft = size_bytes if hard < 0 else min(size_bytes, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


@dataclass(frozen=True, slots=True)
class Call:
    """One event for a guest. Times in seconds, sizes in bytes."""

    event: str
    envelope: bytes
    gate: bool
    timeout_seconds: float
    memory_bytes: int
    output_bytes: int
    environment: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of it."""

    end: End
    message: str | None
    cut: int
    seconds: float
    output: Capture


@dataclass(frozen=True, slots=True)
class Directory:
    """One granted directory: where the host has it, and what the guest calls it."""

    host: str
    guest: str
    writable: bool


@dataclass(slots=True)
class Guest:
    """A loaded component; ``call`` may be used again and again, one at a time."""

    engine: Engine
    component: Component
    facts: Facts
    config: Mapping[str, str]
    directories: Sequence[Directory]
    gauge: Gauge
    linker: Linker = field(init=False)
    _functions: dict[bool, ExportIndex] = field(init=False, default_factory=dict)
    _base_bytes: int = field(init=False, default=0)
    _ask: Ask | None = field(init=False, default=None)
    _output: Capture = field(init=False, default_factory=lambda: Capture(0))

    def __post_init__(self) -> None:
        self.linker = link(self.engine, self.component, self.facts, self)
        place = self.component.get_export_index(self.facts.interface)
        for gate, name in ((False, ON_EVENT), (True, ON_GATE)):
            index = self.component.get_export_index(name, place)
            if index is not None:
                self._functions[gate] = index
        self._base_bytes = self.gauge.data_bytes()

    def call(self, call: Call, clock: Clock, ask: Ask) -> Answer:
        """Run one event. Never raises for what the guest does."""
        self._ask, self._output = ask, Capture(call.output_bytes)
        carried = COPIES * (call.memory_bytes + len(call.envelope))
        self.gauge.allow(self._base_bytes + call.memory_bytes + carried + SLACK_BYTES)
        clock.start()
        began = time.perf_counter()
        store = Store(self.engine)
        try:
            end, message = self._run(store, call)
        finally:
            seconds = time.perf_counter() - began
            clock.stop()
            store.close()
        text, cut = _cut(message)
        return Answer(end, text, cut, seconds, self._output)

    def ask(self, question: str, key: str, value: bytes) -> tuple[bool, bytes]:
        """The guest's question to the executor, while a call runs."""
        if self._ask is None:
            raise RuntimeError("no call is running")
        return self._ask(question, key, value)

    def log(self, level: str, message: str) -> None:
        """A line of the guest's log goes where its stderr goes."""
        self._output.stderr(f"{level}: {message}\n".encode("utf-8", "replace"))

    def _run(self, store: Store, call: Call) -> tuple[End, str | None]:
        store.set_limits(
            memory_size=call.memory_bytes,
            memories=MEMORIES,
            tables=TABLES,
            instances=INSTANCES,
            table_elements=TABLE_ELEMENTS,
        )
        store.set_epoch_deadline(ceil(call.timeout_seconds / TICK_SECONDS) + 1)
        if self.facts.wasi:
            store.set_wasi(self._wasi(call))
            store.set_wasi_http()
        try:
            instance = self.linker.instantiate(store, self.component)
        except WasmtimeError as failure:
            return self._classified(failure, call, store, started=False)
        try:
            return self._ended(instance, store, call)
        except WasmtimeError as failure:
            return self._classified(failure, call, store, started=True)
        except Exception as failure:  # noqa: BLE001  (values that Python cannot hold)
            return End.TRAP, f"{type(failure).__name__}: {failure}"

    def _ended(self, instance: Instance, store: Store, call: Call) -> tuple[End, str | None]:
        function = instance.get_func(store, self._functions[call.gate])
        if function is None:
            return End.REJECTED, "the function is not there"
        result = function(store, call.event, call.envelope.decode())
        # `result<_, string>` comes as None or the message, `result<option<string>, string>` with
        # its tag, since both of its cases may hold a string.
        if isinstance(result, Variant):
            return (End.OK if result.tag == "ok" else End.ERR), result.payload
        return (End.OK, None) if result is None else (End.ERR, result)

    def _wasi(self, call: Call) -> WasiConfig:
        wasi = WasiConfig()
        wasi.stdout_custom = self._output.stdout
        wasi.stderr_custom = self._output.stderr
        if call.environment:
            wasi.env = call.environment
        for directory in self.directories:
            wasi.preopen_dir(directory.host, directory.guest, directory.writable)
        return wasi

    def _classified(
        self, failure: WasmtimeError, call: Call, store: Store, *, started: bool
    ) -> tuple[End, str]:
        if isinstance(failure, ExitTrap):
            return End.TRAP, f"it called exit({failure.code}) instead of returning"
        lines = [line.strip() for line in str(failure).splitlines() if line.strip()] or ["unknown"]
        text = lines[-1]
        if text == "wasm trap: interrupt":
            return End.LATE, "its time was up"
        if "exceeds memory limits" in text or "os error 12" in text:
            return End.MEMORY, text
        if text.startswith("wasm trap: "):
            if "unreachable" in text and self._full(call, store):
                return End.MEMORY, f"{text}, with its memory full"
            return End.TRAP, text.removeprefix("wasm trap: ")
        return (End.TRAP if started else End.REJECTED), text

    def _full(self, call: Call, store: Store) -> bool:
        """Whether the guest had taken nearly all the memory it may have. Nothing reports a refused
        grow; toolchains answer it with ``unreachable``."""
        with_guest = self.gauge.data_bytes()
        store.close()
        return with_guest - self.gauge.data_bytes() >= call.memory_bytes * _FULL


def link(engine: Engine, component: Component, facts: Facts, host: Guest | None) -> Linker:
    """Everything the component may call. Without ``host``: to see whether it links at all."""
    linker = Linker(engine)
    linker.allow_shadowing = True
    if facts.wasi:
        linker.add_wasip2()
        linker.add_wasi_http()
    with linker.root() as root:
        for name in facts.http:
            if name.startswith("wasi:http/outgoing-handler"):
                with root.add_instance(name) as handler:
                    handler.add_func("handle", _no_network)
        add_imports(root, component, engine, facts, host)
    return linker


def _no_network(*_: object) -> None:
    raise WasmtimeError("capability denied: a plugin has no network")


def _cut(message: str | None) -> tuple[str | None, int]:
    if message is None or len(message) <= MAX_MESSAGE_BYTES // 4:
        return message, 0
    kept = message[:MAX_MESSAGE_BYTES].encode("utf-8", "replace")[:MAX_MESSAGE_BYTES]
    text = kept.decode("utf-8", "ignore")
    return text, len(message) - len(text)
