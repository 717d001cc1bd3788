"""What is one attempt to break out, and when has it failed?

Probes are data: ``tests/security/probes/*``. Those of one section run in one sandbox, in two
sandboxes at the same time.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Outside(StrEnum):
    """Where the same attempt is made for its positive control."""

    HOST = "host"
    """As whoever runs the tests, on the host, at places of the tests."""

    ROOT = "root"
    """The same, and only root can do it."""

    NAMESPACES = "namespaces"
    """In new namespaces, as their root: what a container without our walls would allow."""

    NOWHERE = "nowhere"
    """There is no harmless place for it; ``no_control`` says why."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One attempt.

    ``number`` is unique in the suite: the section's letter and a number. ``code`` is Python for
    ``driver``; ``held`` must match the whole of what it prints where the wall holds, ``succeeds``
    where there is no wall. ``wall`` is what is meant to stop it, ``ended_by`` the signal that does.
    """

    number: str
    name: str
    code: str
    held: str
    wall: str
    succeeds: str = ""
    outside: Outside = Outside.HOST
    no_control: str = ""
    ended_by: int | None = None

    def __post_init__(self) -> None:
        if (self.outside is Outside.NOWHERE) != bool(self.no_control):
            raise ValueError(f"{self.number}: say why there is no control, or give one")

    @property
    def section(self) -> str:
        return self.number[0]

    @property
    def program(self) -> str:
        """``code`` without the indentation that it has in its file."""
        return textwrap.dedent(self.code)

    def escaped(self, result: dict[str, Any]) -> str | None:
        """What is wrong with what an attempt inside saw, or None."""
        if result["signal"] != self.ended_by:
            return f"ended by signal {result['signal']}: {result['said']}"
        if result["exit"] not in (0, None):
            return f"could not be made: {result['said']}"
        if not re.fullmatch(self.held, result["said"], re.DOTALL):
            return f"saw {result['said']!r}"
        return None

    def proves(self, result: dict[str, Any]) -> bool:
        """Whether an attempt outside succeeded."""
        return result["signal"] is None and bool(
            re.fullmatch(self.succeeds, result["said"], re.DOTALL)
        )


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the report."""

    number: str
    attempt: str
    backend: str
    user: str
    outcome: str
    """"held", "ESCAPED", "not built: …" or "not run: …"."""
    stopped_by: str

    @property
    def order(self) -> tuple[str, int, str, str, str]:
        digits = re.match(r"\d+", self.number[1:])
        return (
            self.number[0],
            int(digits.group()) if digits else 0,
            self.number,
            self.backend,
            self.user,
        )

    @property
    def ran(self) -> bool:
        return self.outcome in ("held", "ESCAPED")
