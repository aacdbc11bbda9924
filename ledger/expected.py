"""What an append expects of a stream; the check is made on the stream's head, in the append itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .errors import BadInput


@dataclass(frozen=True, slots=True)
class Exact:
    """The stream is at this version: nothing came since it was read. Version 0 is a new stream."""

    version: int

    def __post_init__(self) -> None:
        if isinstance(self.version, bool) or not isinstance(self.version, int) or not 0 <= self.version < 2**62:
            raise BadInput(f"expected version {self.version!r} must be an integer, 0 (new stream) or more")

    def __str__(self) -> str:
        return f"version {self.version}" if self.version else "a new stream"


@dataclass(frozen=True, slots=True)
class Anything:
    """The stream may be at any version, or new."""

    def __str__(self) -> str:
        return "any version"


@dataclass(frozen=True, slots=True)
class Exists:
    """The stream has at least one event."""

    def __str__(self) -> str:
        return "a stream that exists"


@dataclass(frozen=True, slots=True)
class Guard:
    """The stream's status is one of these, and its lease token is this one; None does not look at it.

    A worker reports progress under a guard: a cancel conflicts with nothing, and a lost lease writes nothing.
    """

    statuses: frozenset[str] | None = None
    token: int | None = None

    def __str__(self) -> str:
        wanted = [f"status {' or '.join(sorted(self.statuses))}"] if self.statuses is not None else []
        return " and ".join(wanted + ([f"lease token {self.token}"] if self.token is not None else [])) or "a stream that exists"


Expected = Exact | Anything | Exists | Guard

NEW: Final = Exact(0)
ANY: Final = Anything()
EXISTS: Final = Exists()


def as_expected(value: Expected | int) -> Expected:
    """A bare integer is an exact version."""
    return Exact(value) if isinstance(value, int) else value
