"""Which keys can a policy have? Writes the tables of docs/policies.md from the models.

Between two marks in the page stands one table for each section: key, default, bounds, meaning, and
how two policies meet, all from the fields' own descriptions. Without options the page is rewritten;
``--check`` only says whether it is current.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from executor.policy import Policy
from executor.sizes import Bytes, format_size

PAGE = Path(__file__).resolve().parents[1] / "docs" / "policies.md"
BEGIN, END = "<!-- keys: made by scripts/policy_docs.py -->", "<!-- end of keys -->"


def tables() -> str:
    """One heading and table for each section of a policy, in the order of the file."""
    return "\n".join(_lines()) + "\n"


def renewed(page: str) -> str:
    """The page with today's tables. Raises ValueError where the marks are missing."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE} lacks the marks {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{tables()}\n{END}{after}"


def sections() -> list[tuple[str, type[BaseModel]]]:
    """The policy's sections, by name."""
    return [
        (name, field.annotation)
        for name, field in Policy.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    ]


def _lines() -> Iterator[str]:
    for number, (name, model) in enumerate(sections()):
        if number:
            yield ""
        yield f"### `[{name}]`"
        yield ""
        yield "| key | default | allowed | meaning | when two policies meet |"
        yield "|---|---|---|---|---|"
        for key, field in model.model_fields.items():
            meaning, _, rule = (field.description or "").partition("Stricter: ")
            cells = (f"`{key}`", _default(field), _allowed(field), meaning.strip(), rule.strip())
            yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _is_size(field: FieldInfo) -> bool:
    return any(one in field.metadata for one in getattr(Bytes, "__metadata__", ()))


def _default(field: FieldInfo) -> str:
    value = field.default
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return "`[" + ", ".join(f'"{one}"' for one in value) + "]`"
    if isinstance(value, str):
        return f'`"{value}"`'
    return f'`"{format_size(value)}"`' if _is_size(field) else f"`{value}`"


def _allowed(field: FieldInfo) -> str:
    choices = getattr(field.annotation, "__args__", ())
    if choices and all(isinstance(one, str) for one in choices):
        return ", ".join(f"`{one}`" for one in choices)
    if field.annotation is bool:
        return "`true`, `false`"
    bounds = {
        side: getattr(one, side)
        for one in field.metadata
        for side in ("ge", "le")
        if getattr(one, side, None) is not None
    }
    if bounds:
        low, high = (
            format_size(value) if _is_size(field) and value else str(value)
            for value in (bounds["ge"], bounds["le"])
        )
        return f"{low} to {high}"
    return "a list" if isinstance(field.default, tuple) else "text"


def main() -> int:
    """The exit code."""
    page = PAGE.read_text(encoding="utf-8")
    fresh = renewed(page)
    if "--check" in sys.argv[1:]:
        return 0 if fresh == page else 1
    PAGE.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
