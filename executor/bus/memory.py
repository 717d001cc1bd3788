"""How do topics travel inside one process?"""

from __future__ import annotations

from executor.bus.base import MAX_MESSAGE_BYTES


class MemoryBus:
    """The bus of a process without subscribers; it only tells what it would carry."""

    def publish(self, topic: str, message: bytes, *, depth: int) -> bool:
        del topic, depth
        return len(message) <= MAX_MESSAGE_BYTES
