"""What may a plugin remember from one event to the next?

A small store of bytes for each plugin, in the executor's memory: it lives as long as the executor,
outlives every worker, and is the only thing that does. It is bounded in bytes (keys, values and a
flat cost for each entry) so that no plugin can fill the agent's memory.
"""

from __future__ import annotations

ENTRY_BYTES = 64
"""What an entry costs besides its key and value."""
MAX_KEY_CHARACTERS = 1024
MAX_LISTED_BYTES = 256 * 1024
_LIMIT = 2**63
_AS_IS = ("utf-8", "surrogatepass")
"""A worker's words may hold what no guest can say."""

Answer = tuple[bool, bytes]
"""Whether there is one, and it; with False, bytes are the reason of a failure."""


class KeyValue:
    """One plugin's store, of at most ``limit`` bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._values: dict[str, bytes] = {}
        self.size = 0

    def answer(self, question: str, key: str, value: bytes) -> Answer:
        """What a worker asked; total, whatever it says."""
        if len(key) > MAX_KEY_CHARACTERS or "\0" in key:
            return False, b"a key is at most 1024 characters, without NUL"
        match question:
            case "get":
                return self._get(key)
            case "set":
                return self._set(key, value)
            case "delete":
                return self._delete(key)
            case "list-keys":
                return self._list(key)
            case "increment":
                return self._increment(key, value)
        return False, b"there is no such question"

    def _get(self, key: str) -> Answer:
        value = self._values.get(key)
        return (False, b"") if value is None else (True, value)

    def _set(self, key: str, value: bytes) -> Answer:
        before = self._values.get(key)
        cost = len(value) - len(before) if before is not None else _cost(key, value)
        if self.size + cost > self.limit:
            return False, f"the store is full: {self.limit} bytes".encode()
        self._values[key] = value
        self.size += cost
        return True, b""

    def _delete(self, key: str) -> Answer:
        value = self._values.pop(key, None)
        if value is None:
            return False, b""
        self.size -= _cost(key, value)
        return True, b""

    def _list(self, prefix: str) -> Answer:
        keys = "\0".join(key for key in self._values if key.startswith(prefix)).encode(*_AS_IS)
        if len(keys) > MAX_LISTED_BYTES:
            return False, b"there are too many keys to list: give a longer prefix"
        return True, keys

    def _increment(self, key: str, by: bytes) -> Answer:
        try:
            total = int(self._values.get(key, b"0")) + int(by)
        except ValueError:
            return False, b"the value is no number"
        if not -_LIMIT <= total < _LIMIT:
            return False, b"the sum does not fit into 64 bits"
        stored, reason = self._set(key, str(total).encode())
        return (True, str(total).encode()) if stored else (False, reason)


def _cost(key: str, value: bytes) -> int:
    return len(key.encode(*_AS_IS)) + len(value) + ENTRY_BYTES
