"""Which guests call their host? Each is one WASI or prx:host function, imported as text."""

from __future__ import annotations

from executor.wasm.interface import INTERFACES
from tests.unit.wasm.components import guest

# fmt: off
_FS_ERRORS = [
    "access", "would-block", "already", "bad-descriptor", "busy", "deadlock", "quota", "exist",
    "file-too-large", "illegal-byte-sequence", "in-progress", "interrupted", "invalid", "io",
    "is-directory", "loop", "too-many-links", "message-size", "name-too-long", "no-device",
    "no-entry", "no-lock", "insufficient-memory", "insufficient-space", "not-directory",
    "not-empty",
    "not-recoverable", "unsupported", "no-tty", "no-such-device", "overflow", "not-permitted",
    "pipe", "read-only", "invalid-seek", "text-file-busy", "cross-device",
]
_NET_ERRORS = [
    "unknown", "access-denied", "not-supported", "invalid-argument", "out-of-memory", "timeout",
    "concurrency-conflict", "not-in-progress", "would-block", "invalid-state", "new-socket-limit",
    "address-not-bindable", "address-in-use", "remote-unreachable", "connection-refused",
    "connection-reset", "connection-aborted", "datagram-too-large", "name-unresolvable",
    "temporary-resolver-failure", "permanent-resolver-failure",
]
# fmt: on


def _enum(names: list[str]) -> str:
    return "(enum " + " ".join(f'"{name}"' for name in names) + ")"


def _say(value: str, base: str = "0") -> str:
    """Err with one character: ``base`` and ``value`` more."""
    return f"""
      (i32.store8 (i32.const 64) (i32.add (i32.const {ord(base)}) {value}))
      (i32.store8 (i32.const 0) (i32.const 1))
      (i32.store (i32.const 4) (i32.const 64))
      (i32.store (i32.const 8) (i32.const 1))
      (i32.const 0)"""


def _hosted(
    imports: str, functions: dict[str, tuple[str, str]], code: str, body: str = ""
) -> bytes:
    """``functions``: name → (what it lowers, its core type)."""
    lowered = "".join(f"(core func ${name} {lower})\n" for name, (lower, _) in functions.items())
    exports = " ".join(f'(export "{name}" (func ${name}))' for name in functions)
    return guest(
        body,
        code=code,
        imports=imports,
        lowered=f"{lowered}(core instance $host {exports})",
        core_imports="".join(
            f'(import "host" "{name}" (func ${name} {kind}))\n'
            for name, (_, kind) in functions.items()
        ),
        instantiate='(with "host" (instance $host))',
    )


def sleeper(seconds: float) -> bytes:
    """Asleep inside a host call, where no epoch reaches it."""
    return _hosted(
        """
(import "wasi:io/poll@0.2.0" (instance $poll
  (export "pollable" (type $p (sub resource)))
  (export "[method]pollable.block" (func (param "self" (borrow $p))))))
(alias export $poll "pollable" (type $pollable))
(import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
  (alias outer 1 $pollable (type $outer))
  (export "pollable" (type $p (eq $outer)))
  (export "subscribe-duration" (func (param "when" u64) (result (own $p))))))""",
        {
            "subscribe": (
                '(canon lower (func $clock "subscribe-duration"))',
                "(param i64) (result i32)",
            ),
            "block": ('(canon lower (func $poll "[method]pollable.block"))', "(param i32)"),
        },
        f"(call $block (call $subscribe (i64.const {int(seconds * 1e9)}))) (i32.const 0)",
    )


def printer(times: int) -> bytes:
    """Writes 4096 letters to stdout, so many times."""
    return _hosted(
        """
(import "wasi:io/error@0.2.0" (instance $error (export "error" (type (sub resource)))))
(alias export $error "error" (type $failure))
(import "wasi:io/streams@0.2.0" (instance $streams
  (export "output-stream" (type $stream (sub resource)))
  (alias outer 1 $failure (type $e0))
  (export "error" (type $e1 (eq $e0)))
  (type $s0 (variant (case "last-operation-failed" (own $e1)) (case "closed")))
  (export "stream-error" (type $s1 (eq $s0)))
  (type $r (result (error $s1)))
  (export "[method]output-stream.blocking-write-and-flush"
    (func (param "self" (borrow $stream)) (param "contents" (list u8)) (result $r)))))
(alias export $streams "output-stream" (type $output))
(import "wasi:cli/stdout@0.2.0" (instance $stdout
  (alias outer 1 $output (type $o0))
  (export "output-stream" (type $o1 (eq $o0)))
  (export "get-stdout" (func (result (own $o1))))))""",
        {
            "stdout": ('(canon lower (func $stdout "get-stdout"))', "(result i32)"),
            "write": (
                (
                    '(canon lower (func $streams "[method]output-stream.blocking-write-and-flush") '
                    "(memory $mem))"
                ),
                "(param i32 i32 i32 i32)",
            ),
        },
        f"""
      (local $to i32) (local $left i32)
      (local.set $to (call $stdout))
      (local.set $left (i32.const {times}))
      (memory.fill (i32.const 8192) (i32.const 97) (i32.const 4096))
      (loop $again
        (call $write (local.get $to) (i32.const 8192) (i32.const 4096) (i32.const 32))
        (local.set $left (i32.sub (local.get $left) (i32.const 1)))
        (br_if $again (local.get $left)))
      (i32.const 0)""",
    )


def maker() -> bytes:
    """Makes the directory ``made`` in its first granted one: ``-`` where there is none, ``+`` where
    it could, else A and the number of the error."""
    return _hosted(
        f"""
(import "wasi:filesystem/types@0.2.0" (instance $types
  (export "descriptor" (type $d (sub resource)))
  (type $e0 {_enum(_FS_ERRORS)})
  (export "error-code" (type $e1 (eq $e0)))
  (type $r (result (error $e1)))
  (export "[method]descriptor.create-directory-at"
    (func (param "self" (borrow $d)) (param "path" string) (result $r)))))
(alias export $types "descriptor" (type $descriptor))
(import "wasi:filesystem/preopens@0.2.0" (instance $preopens
  (alias outer 1 $descriptor (type $d0))
  (export "descriptor" (type $d1 (eq $d0)))
  (type $t (tuple (own $d1) string))
  (type $l (list $t))
  (export "get-directories" (func (result $l)))))""",
        {
            "directories": (
                '(canon lower (func $preopens "get-directories") (memory $mem) (realloc $realloc))',
                "(param i32)",
            ),
            "make": (
                (
                    '(canon lower (func $types "[method]descriptor.create-directory-at") '
                    "(memory $mem))"
                ),
                "(param i32 i32 i32 i32)",
            ),
        },
        f"""
      (local $letter i32)
      (call $directories (i32.const 32))
      (i32.store8 (i32.const 128) (i32.const 109)) (i32.store8 (i32.const 129) (i32.const 97))
      (i32.store8 (i32.const 130) (i32.const 100)) (i32.store8 (i32.const 131) (i32.const 101))
      (local.set $letter (i32.const {ord("-")}))
      (if (i32.load (i32.const 36)) (then
        (call $make (i32.load (i32.load (i32.const 32))) (i32.const 128) (i32.const 4)
          (i32.const 48))
        (local.set $letter (i32.const {ord("+")}))
        (if (i32.load8_u (i32.const 48)) (then
          (local.set $letter (i32.add (i32.const {ord("A")}) (i32.load8_u (i32.const 49))))))))
      {_say("(local.get $letter)", chr(0))}""",
    )


def fs_error(name: str) -> str:
    return chr(ord("A") + _FS_ERRORS.index(name))


def variables() -> bytes:
    """How many environment variables there are."""
    return _hosted(
        """
(import "wasi:cli/environment@0.2.0" (instance $env
  (type $t (tuple string string))
  (type $l (list $t))
  (export "get-environment" (func (result $l)))))""",
        {
            "environment": (
                '(canon lower (func $env "get-environment") (memory $mem) (realloc $realloc))',
                "(param i32)",
            )
        },
        f"(call $environment (i32.const 32)) {_say('(i32.load (i32.const 36))')}",
    )


def connector() -> bytes:
    """Asks for a TCP socket: ``+`` where it got one, else A and the number of the error."""
    return _hosted(
        f"""
(import "wasi:sockets/network@0.2.0" (instance $net
  (type $e0 {_enum(_NET_ERRORS)})
  (export "error-code" (type $e1 (eq $e0)))
  (type $f0 (enum "ipv4" "ipv6"))
  (export "ip-address-family" (type $f1 (eq $f0)))))
(alias export $net "error-code" (type $code))
(alias export $net "ip-address-family" (type $family))
(import "wasi:sockets/tcp@0.2.0" (instance $tcp (export "tcp-socket" (type (sub resource)))))
(alias export $tcp "tcp-socket" (type $socket))
(import "wasi:sockets/tcp-create-socket@0.2.0" (instance $create
  (alias outer 1 $code (type $e0)) (export "error-code" (type $e1 (eq $e0)))
  (alias outer 1 $family (type $f0)) (export "ip-address-family" (type $f1 (eq $f0)))
  (alias outer 1 $socket (type $s0)) (export "tcp-socket" (type $s1 (eq $s0)))
  (type $r (result (own $s1) (error $e1)))
  (export "create-tcp-socket" (func (param "address-family" $f1) (result $r)))))""",
        {
            "socket": (
                '(canon lower (func $create "create-tcp-socket") (memory $mem))',
                "(param i32 i32)",
            )
        },
        f"""
      (call $socket (i32.const 0) (i32.const 32))
      {
            _say(
                "(select (i32.add (i32.const 65) (i32.load8_u (i32.const 36))) (i32.const 43) "
                "(i32.load8_u (i32.const 32)))",
                chr(0),
            )
        }""",
    )


def net_error(name: str) -> str:
    return chr(ord("A") + _NET_ERRORS.index(name))


def counter() -> bytes:
    """Counts in kv and in its own memory: two digits, kv first."""
    return _hosted(
        """
(import "prx:host/kv@0.1.0" (instance $kv
  (type $r (result s64 (error string)))
  (export "increment" (func (param "key" string) (param "by" s64) (result $r)))))""",
        {
            "increment": (
                '(canon lower (func $kv "increment") (memory $mem) (realloc $realloc))',
                "(param i32 i32 i64 i32)",
            )
        },
        """
      (global.set $count (i32.add (global.get $count) (i32.const 1)))
      (i32.store8 (i32.const 128) (i32.const 110))
      (call $increment (i32.const 128) (i32.const 1) (i64.const 1) (i32.const 32))
      (i32.store8 (i32.const 64)
        (i32.add (i32.const 48) (i32.wrap_i64 (i64.load (i32.const 40)))))
      (i32.store8 (i32.const 65) (i32.add (i32.const 48) (global.get $count)))
      (i32.store8 (i32.const 0) (i32.const 1))
      (i32.store (i32.const 4) (i32.const 64))
      (i32.store (i32.const 8) (i32.const 2))
      (i32.const 0)""",
        "(global $count (mut i32) (i32.const 0))",
    )


def logger(text: str, *, level: str = '(enum "trace" "debug" "info" "warn" "error")') -> bytes:
    """Logs ``text`` at level info; ``level`` may be ``string``, as PRX's own host takes it."""
    data = "".join(f"(i32.store8 (i32.const {128 + i}) (i32.const {b}))" for i, b in
                   enumerate(f"info{text}".encode()))  # fmt: skip
    of_text = level == "string"
    level_type = "" if of_text else f'(type $l0 {level}) (export "level" (type $level (eq $l0)))'
    first = "string" if of_text else "$level"
    level_value = "(i32.const 128) (i32.const 4)" if of_text else "(i32.const 2)"
    return _hosted(
        f"""
(import "prx:host/log@0.1.0" (instance $log
  {level_type}
  (export "log" (func (param "level" {first}) (param "message" string)))))""",
        {
            "log": (
                '(canon lower (func $log "log") (memory $mem))',
                f"(param {'i32 i32' if of_text else 'i32'} i32 i32)",
            )
        },
        f"{data} (call $log {level_value} (i32.const 132) (i32.const {len(text.encode())})) "
        "(i32.const 0)",
    )


def unknown() -> bytes:
    """Imports what nobody offers."""
    return _hosted(
        '(import "acme:host/rockets" (instance $r (export "launch" (func))))',
        {"launch": ('(canon lower (func $r "launch"))', "")},
        "(i32.const 0)",
    )


EVERY_NAME = INTERFACES
