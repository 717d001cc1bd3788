"""What does a configuration document say, and where exactly is it wrong?

hooks.json, config.toml, policies and plugin.toml are all read through here: bytes in, plain values
out, or every mistake at once, each with a JSON pointer. Nothing is guessed, coerced or skipped, and
no message repeats a rejected *value* (it may be a secret; SPEC section 6).
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Annotated, NoReturn, get_args

from pydantic import BaseModel, BeforeValidator, ValidationError
from pydantic_core import ErrorDetails

from executor.errors import Fault, InvalidConfig

MAX_NESTING = 64
"""Deeper documents are refused. The deepest legal one has six levels."""
MAX_FAULTS = 100
"""Readers may stop looking after so many: a file of five megabytes can hold a million."""

_SURROGATE = re.compile("[\ud800-\udfff]")


class _Repeated(dict[str, object]):
    """An object in which a key stood twice; JSON parsers disagree on what that means."""

    keys_twice: tuple[str, ...] = ()


def decode_json(data: bytes, *, where: str, max_bytes: int) -> object:
    """The value of a strict JSON document of at most ``max_bytes``.

    Raises InvalidConfig for: too large, a byte order mark, not UTF-8, empty, no JSON, a repeated
    key, NaN or an infinity, a lone surrogate, nesting deeper than ``MAX_NESTING``.
    """
    text = _text(data, where=where, max_bytes=max_bytes)
    try:
        value: object = json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        raise InvalidConfig(f"no valid JSON at {place}: {error.msg}", where=where) from None
    except RecursionError:
        raise InvalidConfig(_too_deep(), where=where) from None
    except ValueError:
        raise InvalidConfig("holds a number with too many digits", where=where) from None
    refuse_if(_value_faults(value), where=where)
    return value


def decode_toml(data: bytes, *, where: str, max_bytes: int) -> dict[str, object]:
    """The table of a strict TOML document of at most ``max_bytes``; an empty one is ``{}``.

    Raises InvalidConfig as ``decode_json`` does.
    """
    text = _text(data, where=where, max_bytes=max_bytes, may_be_empty=True)
    _check_dots(text, where=where)
    try:
        table: dict[str, object] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfig(f"no valid TOML: {error}", where=where) from None
    except RecursionError:
        raise InvalidConfig(_too_deep(), where=where) from None
    except ValueError:
        raise InvalidConfig("holds a number with too many digits", where=where) from None
    refuse_if(_value_faults(table), where=where)
    return table


def pointer(*parts: str | int) -> str:
    """A JSON pointer (RFC 6901) from its unescaped parts; "" for none."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def hint(name: str, known: Iterable[str]) -> str:
    """``; did you mean "…"?`` for the nearest known name, else the empty string.

    Case, ``_`` and ``-`` do not count: ``pre_tool_use`` is near ``PreToolUse``.
    """
    folded = {_fold(one): one for one in sorted(known)}
    near = get_close_matches(_fold(name[:200]), folded, n=1, cutoff=0.6)
    return f'; did you mean "{folded[near[0]]}"?' if near else ""


def refuse_if(faults: Collection[Fault], *, where: str) -> None:
    """Raise InvalidConfig with the first ``MAX_FAULTS`` faults, if there are any."""
    if faults:
        refuse(faults, where=where)


def refuse(faults: Collection[Fault], *, where: str) -> NoReturn:
    """Always raises InvalidConfig; see ``refuse_if``."""
    listed = list(faults)[:MAX_FAULTS]
    if len(faults) > MAX_FAULTS:
        listed.append(Fault("", f"and more: only the first {MAX_FAULTS} mistakes are listed"))
    raise InvalidConfig(listed, where=where)


def kind_of(value: object) -> str:
    """What a reader of JSON or TOML would call the value's type, with its article."""
    for types, name in _KINDS:
        if isinstance(value, types):
            return name
    return "another type"


def model_faults(
    error: ValidationError, model: type[BaseModel], *, at: str = "", also: Iterable[str] = ()
) -> list[Fault]:
    """Pydantic's complaints about ``model`` as faults below the pointer ``at``.

    ``also`` are keys that are legal beside the model's own (for the hints).
    """
    details = error.errors(include_url=False)[: MAX_FAULTS + 1]
    return [_model_fault(detail, model, at, also) for detail in details]


def _list_as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


LISTED = BeforeValidator(_list_as_tuple)
"""For ``Annotated[tuple[T, ...], LISTED]``: strict models take a document's list for a tuple."""

Strings = Annotated[tuple[str, ...], LISTED]
"""A list of strings in a document; a tuple in a frozen model."""


# ------------------------------------------------------------------------------- the text


def _text(data: bytes, *, where: str, max_bytes: int, may_be_empty: bool = False) -> str:
    if len(data) > max_bytes:
        raise InvalidConfig(f"is {len(data)} bytes long; at most {max_bytes}", where=where)
    if data.startswith(b"\xef\xbb\xbf"):
        message = "starts with a byte order mark; save it as UTF-8 without one"
        raise InvalidConfig(message, where=where)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"is not UTF-8 at byte {error.start}", where=where) from None
    if not may_be_empty and not text.strip():
        raise InvalidConfig("is empty; delete it or write an object", where=where)
    return text


def _check_dots(text: str, *, where: str) -> None:
    """Deep dotted keys, before the parser, whose time grows with the square of their depth."""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.count(".") <= MAX_NESTING or line.lstrip().startswith("#"):
            continue
        if any(part.count(".") > MAX_NESTING for part in line.split("=")):
            message = f"line {number} has a key of more than {MAX_NESTING} parts"
            raise InvalidConfig(message, where=where)


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    plain = dict(pairs)
    if len(plain) == len(pairs):
        return plain
    repeated = _Repeated(plain)
    times = Counter(key for key, _ in pairs)
    repeated.keys_twice = tuple(key for key, number in times.items() if number > 1)
    return repeated


def _too_deep() -> str:
    return f"is nested deeper than {MAX_NESTING} levels"


def _value_faults(root: object) -> list[Fault]:
    """What JSON or TOML can write and no reader should accept. Iterative: depth is an attack."""
    if (fault := _leaf_fault(root)) is not None:
        return [Fault("", fault)]
    faults: list[Fault] = []
    stack: list[tuple[object, str, int]] = [(root, "", 1)]
    while stack and len(faults) <= MAX_FAULTS:
        value, at, depth = stack.pop()
        if depth > MAX_NESTING:
            return [Fault("", _too_deep())]
        if isinstance(value, dict):
            faults += _key_faults(value, at)
            members: Iterable[tuple[str | int, object]] = value.items()
        else:
            members = enumerate(value) if isinstance(value, list) else ()
        below: list[tuple[object, str, int]] = []
        for part, item in members:
            if isinstance(item, (dict, list)):
                below.append((item, at + pointer(part), depth + 1))
            elif (fault := _leaf_fault(item)) is not None:
                faults.append(Fault(at + pointer(part), fault))
        stack += reversed(below)
    return faults


def _key_faults(value: dict[str, object], at: str) -> list[Fault]:
    twice = value.keys_twice if isinstance(value, _Repeated) else ()
    faults = [Fault(at + pointer(key), "stands twice") for key in twice]
    if any(not key.isascii() and _SURROGATE.search(key) for key in value):
        faults.append(Fault(at, "has a key with a lone surrogate"))
    return faults


def _leaf_fault(value: object) -> str | None:
    if isinstance(value, float) and not math.isfinite(value):
        return "is no finite number"
    if isinstance(value, str) and not value.isascii() and _SURROGATE.search(value):
        return "holds a lone surrogate, which is no character"
    return None


# ----------------------------------------------------------------------- pydantic's voice

_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "true or false"),
    (str, "a string"),
    (int, "a whole number"),
    (float, "a number with a fraction"),
    (Mapping, "an object"),
    ((list, tuple), "a list"),
    (type(None), "null"),
)

_WANTED: Mapping[str, str] = {
    "string_type": "a string",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "dict_type": "an object",
    "model_type": "an object",
    "tuple_type": "a list",
}


def _model_fault(
    detail: ErrorDetails, model: type[BaseModel], at: str, also: Iterable[str]
) -> Fault:
    location = tuple(part for part in detail["loc"] if part != "[key]")
    place = at + pointer(*location)
    kind, given, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind in _WANTED:
        return Fault(place, f"must be {_WANTED[kind]}, not {kind_of(given)}")
    match kind:
        case "missing":
            message = "is required"
        case "extra_forbidden":
            known = _keys_at(model, location[:-1])
            message = "is no known key" + hint(str(location[-1]), {*known, *also})
        case "literal_error":
            words = str(context.get("expected", ""))
            known = set(re.findall(r"'([^']*)'", words))
            message = f"must be one of {words}" + hint(str(given), known)
        case "greater_than_equal":
            message = f"must be at least {context['ge']}"
        case "less_than_equal":
            message = f"must be at most {context['le']}"
        case "string_pattern_mismatch":
            message = f"must match {context['pattern']}"
        case "value_error":
            message = str(context.get("error", detail["msg"]))
        case _:
            message = detail["msg"]
    return Fault(place, message)


def _keys_at(model: type[BaseModel], location: tuple[str | int, ...]) -> set[str]:
    """The legal keys of the (sub)model at that place."""
    here: object = model
    for part in location:
        if isinstance(part, int):
            here = get_args(here)[0]
        elif isinstance(here, type) and issubclass(here, BaseModel) and part in here.model_fields:
            here = here.model_fields[part].annotation
    if isinstance(here, type) and issubclass(here, BaseModel):
        return set(here.model_fields)
    return set()


def _fold(name: str) -> str:
    return name.casefold().replace("_", "").replace("-", "")
