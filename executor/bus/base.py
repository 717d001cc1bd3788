"""What must a bus offer to the dispatcher?"""

from __future__ import annotations

from typing import Protocol

MAX_MESSAGE_BYTES = 65536
"""Larger messages stay off the bus (SPEC section 5); shell and WASM hooks still get them."""


class Bus(Protocol):
    """Delivers at most once, never waits, never raises."""

    def publish(self, topic: str, message: bytes, *, depth: int) -> bool:
        """Whether the message was accepted (its size allows it and the bus is open)."""
        ...
