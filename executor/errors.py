"""What can go wrong, and whose fault is it?

::

    ExecutorError
    ├── InvalidInput (ValueError)   the caller's mistake; carries every fault that was found
    │   ├── InvalidEvent            an event or payload that SPEC section 1 does not allow
    │   └── InvalidConfig           hooks.json, config.toml, a policy or a plugin.toml
    ├── Refused                     a rule says no (policy, ownership, trust)
    └── Unavailable                 an engine, a kernel feature or an image is missing

What a *hook* does is never an exception: it is an ``Outcome``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """One mistake in a document.

    ``pointer`` is a JSON pointer (RFC 6901) into the document, "" for the whole of it;
    ``message`` says what is wrong and what to do, and never echoes a secret value.
    """

    pointer: str
    message: str

    def __str__(self) -> str:
        return f"{self.pointer or '/'}: {self.message}"


class ExecutorError(Exception):
    """The root of everything that this package raises on purpose."""


class InvalidInput(ExecutorError, ValueError):
    """The caller's mistake. ``faults`` lists all of them, ``where`` names the document."""

    def __init__(self, faults: Sequence[Fault] | str, *, where: str = "") -> None:
        self.faults: tuple[Fault, ...] = (
            (Fault("", faults),) if isinstance(faults, str) else tuple(faults)
        )
        self.where = where
        prefix = f"{where}: " if where else ""
        super().__init__("\n".join(f"{prefix}{fault}" for fault in self.faults))


class InvalidEvent(InvalidInput):
    """An event name or payload that is not one of SPEC section 1."""


class InvalidConfig(InvalidInput):
    """A configuration file that cannot be used."""


class Refused(ExecutorError):
    """A rule says no. The message names the rule and the way out."""


class Unavailable(ExecutorError):
    """Something the machine should offer is missing. ``remedy`` is what mends it.

    ``engine`` is true where a container engine could not be reached (CLI exit code 4, else 3).
    """

    def __init__(self, message: str, *, remedy: str = "", engine: bool = False) -> None:
        self.remedy = remedy
        self.engine = engine
        super().__init__(f"{message}. Remedy: {remedy}" if remedy else message)
