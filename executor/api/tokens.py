"""Who may do what over HTTP?

Bearer tokens in one file of the state directory (0600). A token is 32 random bytes; the file holds
its SHA-256, scopes and expiry, so that who reads the file has no token (with so much randomness a
slow hash would add nothing). A running daemon sees a token that was made or revoked beside it: the
file's marks are compared at each request.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path

from executor.errors import InvalidConfig, Unavailable

PREFIX = "hkx_"
MAX_TOKENS = 1000
MAX_DAYS = 36_500
_TIME = "%Y-%m-%dT%H:%M:%SZ"


class Scope(StrEnum):
    """What a token is good for; none of them includes another."""

    READ = "read"
    WRITE = "write"
    EMIT = "emit"


@dataclass(frozen=True, slots=True)
class Token:
    """What is kept of a token; times UTC in whole seconds, ``expires_at`` None: never."""

    id: str
    sha256: str
    scopes: tuple[str, ...]
    created_at: str
    expires_at: str | None = None

    def allows(self, scope: Scope) -> bool:
        return scope.value in self.scopes

    def expired(self, moment: datetime) -> bool:
        if self.expires_at is None:
            return False
        return moment >= datetime.strptime(self.expires_at, _TIME).replace(tzinfo=UTC)

    def told(self) -> dict[str, object]:
        """For people and programs; without the hash."""
        return {
            "id": self.id,
            "scopes": list(self.scopes),
            "created_at": self.created_at,
            "expires_at": self.expires_at,
        }


class Tokens:
    """The tokens of one workspace. Blocking, but for a stat(2) at most where nothing changed."""

    def __init__(self, state: Path) -> None:
        self._path = state / "tokens.json"
        self._mark: tuple[int, ...] | None = None
        self._tokens: tuple[Token, ...] = ()

    def list(self) -> tuple[Token, ...]:
        """All of them, expired ones too. Raises Unavailable for a file that others could write."""
        try:
            status = os.stat(self._path, follow_symlinks=False)
        except FileNotFoundError:
            self._mark, self._tokens = None, ()
            return ()
        mark = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if mark != self._mark:
            self._refuse_foreign(status)
            self._tokens = _parsed(self._path)
            self._mark = mark
        return self._tokens

    def find(self, secret: str, moment: datetime | None = None) -> Token | None:
        """The token with this secret, unless it has expired. Looks at every one, found or not."""
        digest = hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
        found = None
        for token in self.list():
            if hmac.compare_digest(token.sha256, digest):
                found = token
        if found is None or found.expired(moment or datetime.now(UTC)):
            return None
        return found

    def create(self, scopes: Iterable[Scope], days: int | None = None) -> tuple[str, Token]:
        """A new token, shown this once, and what is kept of it."""
        wanted = tuple(scope.value for scope in Scope if scope in set(scopes))
        if not wanted:
            raise InvalidConfig("a token needs at least one scope")
        if days is not None and not 1 <= days <= MAX_DAYS:
            raise InvalidConfig(f"a token expires in 1 to {MAX_DAYS} days")
        now = datetime.now(UTC)
        expires = None if days is None else (now + timedelta(days=days)).strftime(_TIME)
        secret = PREFIX + secrets.token_urlsafe(32)
        token = Token(
            f"tok_{secrets.token_hex(4)}",
            hashlib.sha256(secret.encode()).hexdigest(),
            wanted,
            now.strftime(_TIME),
            expires,
        )
        with self._alone():
            kept = [one for one in self.list() if not one.expired(now)]
            if len(kept) >= MAX_TOKENS:
                raise InvalidConfig(f"there are {MAX_TOKENS} tokens; revoke some")
            self._write([*kept, token])
        return secret, token

    def revoke(self, name: str) -> bool:
        """Whether there was one with this id."""
        with self._alone():
            before = self.list()
            after = [one for one in before if one.id != name]
            if len(after) == len(before):
                return False
            self._write(after)
            return True

    def _write(self, tokens: Iterable[Token]) -> None:
        text = json.dumps({"tokens": [asdict(one) for one in tokens]}, indent=1)
        temporary = self._path.with_suffix(f".{secrets.token_hex(4)}.new")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self._path)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = self._path.with_suffix(".lock")
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _refuse_foreign(self, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise Unavailable(f"{self._path} is no file of your own", remedy=f"rm {self._path}")
        if status.st_mode & 0o077:
            raise Unavailable(
                f"others can read or write {self._path}", remedy=f"chmod 600 {self._path}"
            )


def _parsed(path: Path) -> tuple[Token, ...]:
    try:
        entries = json.loads(path.read_bytes())["tokens"]
        return tuple(
            Token(
                str(one["id"]),
                str(one["sha256"]),
                tuple(str(scope) for scope in one["scopes"]),
                str(one["created_at"]),
                None if one["expires_at"] is None else str(one["expires_at"]),
            )
            for one in entries
        )
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as failure:
        raise Unavailable(f"{path} cannot be read: {failure}", remedy=f"rm {path}") from None
