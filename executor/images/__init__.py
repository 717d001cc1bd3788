"""Which root file systems can a sandbox have, and how are they made on this machine?

Theory of operation::

    sandbox-images/*.toml ─► definition ─► build ──────► archive ─────────► cache ──► engine
    what is to be in it                    mmdebstrap,   what stays, in     by        import, for
                                           host's apt    one fixed order    digest    Docker

An image is known by the sha256 of its root archive. The archive depends on the definition and on
the versions of the Debian packages and on nothing else: no time, no host name, no order of
directory entries. It is unpacked once, for the namespace backend, and imported into an engine when
one asks for it; there it is run by the engine's image id, after its one layer was compared with
the digest.

``packages`` knows the host's Debian sources: where packages come from, and which are outdated.
"""

from __future__ import annotations

from executor.images.build import build
from executor.images.cache import Image, find, required
from executor.images.definition import Definition, list_definitions
from executor.images.engine import engine_id
from executor.images.packages import outdated

__all__ = [
    "Definition",
    "Image",
    "build",
    "engine_id",
    "find",
    "list_definitions",
    "outdated",
    "required",
]
