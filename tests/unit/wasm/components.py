"""Which guests do the tests have? Components as text, encoded by wasmtime: no binary is in git."""

from __future__ import annotations

from functools import cache
from textwrap import indent

import wasmtime

PREFERRED = "prx:plugin/hooks@0.1.0"
OK = "(i32.const 0)"
EVENT = (
    '(func (param "event" string) (param "payload-json" string) (result (result (error string))))'
)
GATE = (
    '(func (param "event" string) (param "payload-json" string) '
    "(result (result (option string) (error string))))"
)
ALLOCATOR = """
(global $next (mut i32) (i32.const 4096))
(func $allocate (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
  (local $at i32)
  (local.set $at (i32.and (i32.add (global.get $next) (i32.const 7)) (i32.const -8)))
  (global.set $next (i32.add (local.get $at) (local.get 3)))
  (block $fits
    (br_if $fits (i32.le_u (global.get $next) (i32.mul (memory.size) (i32.const 65536))))
    (drop (memory.grow
      (i32.add (i32.div_u (local.get 3) (i32.const 65536)) (i32.const 1)))))
  (local.get $at))
"""


@cache
def encode(text: str) -> bytes:
    return bytes(wasmtime.wat2wasm(text))


def guest(
    body: str = "",
    *,
    code: str = OK,
    gate: str | None = None,
    interface: str = PREFERRED,
    pages: int = 1,
    memories: int = 1,
    imports: str = "",
    lowered: str = "",
    core_imports: str = "",
    instantiate: str = "",
    event_type: str = EVENT,
) -> bytes:
    """A component whose on-event runs ``code``, which leaves the address of its result: a byte that
    is 0 for ok and 1 for an error, then address and length of the message.

    ``body`` are more parts of the core module; ``imports``/``lowered``/``core_imports``/
    ``instantiate`` bring in host functions.
    """
    more = "".join(f"(memory {pages})" for _ in range(memories - 1))
    gate_function = gate_lift = gate_export = ""
    if gate is not None:
        gate_function = f'(func (export "on-gate") (param i32 i32 i32 i32) (result i32) {gate})'
        gate_lift = f"""
  (alias core export $i "on-gate" (core func $on-gate))
  (type $g {GATE})
  (func $h (type $g)
    (canon lift (core func $on-gate) (memory $mem) (realloc $realloc)))"""
        gate_export = '(export "on-gate" (func $h))'
    return encode(f"""(component
{indent(imports, "  ")}
  (core module $libc
    (memory (export "memory") {pages})
    {ALLOCATOR})
  (core instance $libc (instantiate $libc))
  (alias core export $libc "memory" (core memory $mem))
  (alias core export $libc "cabi_realloc" (core func $realloc))
{indent(lowered, "  ")}
  (core module $m
    (import "libc" "memory" (memory {pages}))
    (import "libc" "cabi_realloc" (func $allocate (param i32 i32 i32 i32) (result i32)))
    {core_imports}
    {more}
    {body}
    (func (export "on-event") (param $event i32) (param $event-len i32)
      (param $payload i32) (param $payload-len i32) (result i32)
      {code})
    {gate_function})
  (core instance $i (instantiate $m (with "libc" (instance $libc)) {instantiate}))
  (alias core export $i "on-event" (core func $on-event))
  (type $t {event_type})
  (func $f (type $t) (canon lift (core func $on-event) (memory $mem) (realloc $realloc)))
  {gate_lift}
  (instance $e (export "on-event" (func $f)) {gate_export})
  (export "{interface}" (instance $e))
)""")


def says(code: int, text: str) -> str:
    """A result with a message, from constants: 0 … err."""
    return f"""
      (i32.store8 (i32.const 0) (i32.const {code}))
      (i32.store (i32.const 4) (i32.const 64))
      (i32.store (i32.const 8) (i32.const {len(text)}))
      {_bytes(text)}
      (i32.const 0)"""


ECHO = """
      (i32.store8 (i32.const 0) (i32.const 1))
      (i32.store (i32.const 4) (local.get $payload))
      (i32.store (i32.const 8) (local.get $payload-len))
      (i32.const 0)"""
"""The envelope comes back as the error's message."""
TRAP = "(unreachable)"
LOOP = "(loop $again (br $again)) (i32.const 0)"
RECURSION = ("(func $deeper (call $deeper) (drop (i32.const 1)))", "(call $deeper) (i32.const 0)")
GROW = """
      (loop $again
        (if (i32.eq (memory.grow (i32.const 16)) (i32.const -1)) (then (unreachable)))
        (br $again))
      (i32.const 0)"""


def _bytes(text: str) -> str:
    return "\n".join(
        f"(i32.store8 (i32.const {64 + index}) (i32.const {byte}))"
        for index, byte in enumerate(text.encode())
    )
