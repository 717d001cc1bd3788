"""How does a built image get into a container engine, and how is it known there?

By content, not by name: the one layer of an imported archive has the archive's own sha256 as its
diff id, so the engine itself says whether an image is ours. The label only finds candidates (an
image built *from* ours inherits it, and is not ours). The name is for people, and keeps the image
from being pruned.
"""

from __future__ import annotations

from typing import Any

import docker
import docker.errors
import requests.exceptions

from executor.errors import Unavailable
from executor.images.cache import Image

LABEL = "hook-executor.digest"
REPOSITORY = "hook-executor"
_CHUNK_BYTES = 1 << 20
# What an image could set for every process in it. Ours sets nothing, whatever the engine's default.
_SILENT = ("Entrypoint", "Env", "ExposedPorts", "Healthcheck", "OnBuild", "User", "Volumes")


def engine_id(client: docker.APIClient, image: Image) -> str:
    """The image's id (``sha256:…``) in that engine, which imports it if it is not there.

    Raises ``Unavailable`` where the engine does not answer, or gives back something else than it
    was given.
    """
    try:
        return _find(client, image) or _import(client, image)
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        message = f"the engine cannot take the image {image.name}: {error}"
        raise Unavailable(message, remedy="see that the engine is running", engine=True) from error


def _find(client: docker.APIClient, image: Image) -> str | None:
    candidates = client.images(all=True, filters={"label": f"{LABEL}={image.digest}"})
    for candidate in candidates:
        document: dict[str, Any] = client.inspect_image(candidate["Id"])  # type: ignore[no-untyped-call]
        if _is_ours(document, image):
            return str(candidate["Id"])
    return None


def _import(client: docker.APIClient, image: Image) -> str:
    with image.archive.open("rb") as stream:
        client.import_image(
            # An iterator, not the file: else requests adds a length to the chunked encoding.
            iter(lambda: stream.read(_CHUNK_BYTES), b""),
            stream_src=True,
            repository=f"{REPOSITORY}/{image.name}",
            tag=image.digest[:12],
            changes=[f"LABEL {LABEL}={image.digest}"],
        )
    found = _find(client, image)
    if found is None:
        message = f"the engine changed the image {image.name} while importing it"
        raise Unavailable(message, remedy="report the engine's name and version")
    return found


def _is_ours(document: dict[str, Any], image: Image) -> bool:
    config = document.get("Config") or {}
    layers = (document.get("RootFS") or {}).get("Layers")
    return layers == [f"sha256:{image.digest}"] and not any(config.get(key) for key in _SILENT)
