"""What is to be in an image?

One file of ``sandbox-images/`` defines one image. ``extends`` makes a chain; an image has the
packages of its whole chain.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from executor.errors import Fault, InvalidConfig
from executor.paths import data_directory

# Names become folder names and labels; packages, words of a command line (Debian policy 5.6.1).
NAME = StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,40}$")
PACKAGE = StringConstraints(pattern=r"^[a-z0-9][a-z0-9.+-]+$")


class Definition(BaseModel):
    """One image as its file describes it.

    ``packages`` are installed with what they depend on; what the packages of ``remove`` installed
    does not stay.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, NAME]
    description: str
    extends: Annotated[str, NAME] | None = None
    packages: tuple[Annotated[str, PACKAGE], ...]
    remove: tuple[Annotated[str, PACKAGE], ...] = ()


def list_definitions(directory: Path | None = None) -> tuple[Definition, ...]:
    """Every image that can be built, by name."""
    folder = directory or data_directory("sandbox-images")
    return tuple(_read(path) for path in sorted(folder.glob("*.toml")))


def chain(name: str, directory: Path | None = None) -> tuple[Definition, ...]:
    """The definitions that make up an image, the one that extends nothing first."""
    known = {definition.name: definition for definition in list_definitions(directory)}
    links: list[Definition] = []
    wanted: str | None = name
    while wanted is not None:
        if wanted not in known:
            message = f"no image {wanted!r} is defined; there are: {', '.join(sorted(known))}"
            raise InvalidConfig(message)
        if known[wanted] in links:
            message = f"image {name!r} extends itself"
            raise InvalidConfig(message)
        links.append(known[wanted])
        wanted = known[wanted].extends
    return tuple(reversed(links))


def _read(path: Path) -> Definition:
    try:
        definition = Definition.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfig(str(error), where=str(path)) from error
    except ValidationError as error:
        faults = [
            Fault("/" + "/".join(map(str, fault["loc"])), fault["msg"])
            for fault in error.errors(include_input=False, include_url=False)
        ]
        raise InvalidConfig(faults, where=str(path)) from error
    if definition.name != path.stem:
        raise InvalidConfig(
            [Fault("/name", f"must be {path.stem!r}, as the file")], where=str(path)
        )
    return definition
