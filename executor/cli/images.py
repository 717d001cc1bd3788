"""``hook-executor images``: which root file systems can a sandbox have here?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from executor.cli.options import HERE, Json, Where
from executor.cli.output import print_json, print_table, say, talk

if TYPE_CHECKING:
    from executor.images import Image

app = App(name="images", help="Build and list the sandbox images.", help_format="plaintext")


@app.command
def build(
    *names: Annotated[str, Parameter(help="Images of sandbox-images/; all if left out.")],
    force: Annotated[bool, Parameter(negative="", help="Build again what is there.")] = False,
    json: Json = False,
    where: Where = HERE,
) -> int:
    """Build images from Debian packages, about half a minute each; what is there stays."""
    del where  # one cache a user, whatever the workspace
    from executor import images

    wanted = names or tuple(definition.name for definition in images.list_definitions())
    built = [images.build(name, report=talk, force=force) for name in wanted]
    if json:
        print_json({"images": [_as_json(image) for image in built]})
        return 0
    for image in built:
        say(f"{image.name} sha256:{image.digest}")
    return 0


@app.command(name="list")
def list_images(*, json: Json = False, where: Where = HERE) -> int:
    """The images that are defined, and what is built of them."""
    del where
    from executor import images

    definitions = images.list_definitions()
    found = {definition.name: images.find(definition.name) for definition in definitions}
    stale = {name: images.outdated(image) for name, image in found.items() if image is not None}
    if json:
        listed = [
            {
                "name": definition.name,
                "description": definition.description,
                **_as_json(found[definition.name]),
                "outdated": list(stale.get(definition.name, ())),
            }
            for definition in definitions
        ]
        print_json({"images": listed})
    else:
        rows = [
            (definition.name, *_cells(found[definition.name]), definition.description)
            for definition in definitions
        ]
        print_table(("image", "digest", "built", "packages", "description"), rows)
    for name, packages in stale.items():
        if packages:
            talk(
                f"warning: {name} is older than security updates of {', '.join(packages)}; "
                f"run: hook-executor images build --force {name}"
            )
    return 0


def _cells(image: Image | None) -> tuple[str, str, str]:
    if image is None:
        return ("not built", "", "")
    return (image.digest[:12], image.built_at, str(len(image.packages)))


def _as_json(image: Image | None) -> dict[str, object]:
    if image is None:
        return {"digest": None, "built_at": None, "root": None, "packages": []}
    return {
        "name": image.name,
        "digest": image.digest,
        "built_at": image.built_at,
        "root": str(image.root),
        "packages": list(image.packages),
    }
