"""What does one action say?

The fields of SPEC section 2, frozen and valid by construction: the rules on words are those of
``admission``. What only an event, the disk or a policy can tell is asked elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    field_validator,
)

from executor import admission
from executor.document import LISTED
from executor.globs import any_glob_matches

DEFAULT_TIMEOUT_MS = 30_000
MAX_TIMEOUT_MS = 300_000
"""Ten hooks of five minutes are a mistake in the unit more often than a wish."""

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z")


def _refusing(faults_of: Callable[[str], list[str]]) -> AfterValidator:
    def check(text: str) -> str:
        if faults := faults_of(text):
            raise ValueError("; ".join(faults))
        return text

    return AfterValidator(check)


Command = Annotated[str, _refusing(admission.command_faults)]
Argument = Annotated[str, _refusing(admission.argument_faults)]
Name = Annotated[str, _refusing(admission.name_faults)]
Value = Annotated[str, _refusing(admission.value_faults)]
Directory = Annotated[str, _refusing(admission.cwd_faults)]


def _matcher(text: str) -> str:
    if not all(text.split("|")):
        raise ValueError("has an empty alternative, which matches nothing: write * for all tools")
    if any(character.isspace() or not character.isprintable() for character in text):
        raise ValueError("holds white space or control characters, which no tool's name has")
    return text


def _time(text: str) -> str:
    if not _TIME.fullmatch(text):
        raise ValueError("must be a UTC time like 2026-03-20T10:00:00Z")
    return text


class Action(BaseModel):
    """What to run (SPEC section 2), by the rules of ``admission``; times in milliseconds.

    Made by hand it raises pydantic's ValidationError; see ``parse_action``.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    command: Command = Field(
        description="An absolute path, a bare name found on the safe PATH inside the sandbox, or a "
        "path with a slash, relative to the workspace. No shell, no splitting."
    )
    args: Annotated[tuple[Argument, ...], LISTED] = Field(
        default=(), description="Handed over literally."
    )
    env: dict[Name, Value] = Field(default={}, description="Added to the sanitized environment.")
    cwd: Directory | None = Field(
        default=None, description="Working directory; the workspace if left out."
    )
    timeout_ms: int = Field(
        default=DEFAULT_TIMEOUT_MS, description="Milliseconds until the hook is stopped."
    )
    stdin_json: bool = Field(default=False, description="The envelope on stdin.")
    matcher: Annotated[str, AfterValidator(_matcher)] | None = Field(
        default=None, description="Tool names: full match, * globs, | alternatives."
    )
    policy: Annotated[str, StringConstraints(min_length=1, max_length=64)] | None = Field(
        default=None, description="A named policy to ask for; config.toml must allow asking."
    )
    protocol: Literal["native", "claude", "gemini", "cursor"] = Field(
        default="native", description="How a gate hook's exit code and output read."
    )

    @field_validator("timeout_ms")
    @classmethod
    def _timeout(cls, value: int, info: ValidationInfo) -> int:
        largest = (info.context or {}).get("max_timeout_ms", MAX_TIMEOUT_MS)
        if not 1 <= value <= largest:
            raise ValueError(f"is in milliseconds and must be 1 to {largest}")
        return value

    def matches_tool(self, name: str) -> bool:
        """Whether the ``matcher`` means the tool; without one every tool is meant."""
        return self.matcher is None or any_glob_matches(self.matcher.split("|"), name)


class ManagedFields(BaseModel):
    """The fields of an entry that are not the action's: written by the API, allowed by hand."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$")] | None = Field(
        default=None, description="Unique in the file, like hook_01."
    )
    enabled: bool = Field(default=True, description="False: kept, not run.")
    created_at: Annotated[str, AfterValidator(_time)] | None = Field(
        default=None, description="UTC, like 2026-03-20T10:00:00Z."
    )
    updated_at: Annotated[str, AfterValidator(_time)] | None = Field(
        default=None, description="UTC, like 2026-03-20T10:00:00Z."
    )
