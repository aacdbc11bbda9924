"""What an append expects of a stream; the check is made on the stream's head, in the append itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .errors import BadInput, shown


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _are_texts(value: object) -> bool:
    return isinstance(value, frozenset | set) and all(isinstance(item, str) for item in value)


@dataclass(frozen=True, slots=True)
class Exact:
    """The stream is at this version: nothing came since it was read. Version 0 is a new stream."""

    version: int

    def __post_init__(self) -> None:
        if not _is_integer(self.version) or not 0 <= self.version < 2**62:
            raise BadInput(
                f"expected version {shown(self.version)} must be an integer, "
                "0 (a new stream) or more, below 2**62"
            )

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

    def __post_init__(self) -> None:
        if self.statuses is not None and not _are_texts(self.statuses):
            raise BadInput(f"guarded statuses {shown(self.statuses)} must be a frozenset of texts")
        if self.token is not None and (not _is_integer(self.token) or not -(2**63) <= self.token < 2**63):
            raise BadInput(f"lease token {shown(self.token)} must be an integer of 64 bits")

    def __str__(self) -> str:
        wanted = [f"status {' or '.join(sorted(self.statuses))}"] if self.statuses is not None else []
        return (
            " and ".join(wanted + ([f"lease token {self.token}"] if self.token is not None else []))
            or "a stream that exists"
        )


@dataclass(frozen=True, slots=True)
class StandsIn:
    """The stream's state says one of these statuses; the append names it and counts on (machines only).

    What is appended has `\\x03` where the status from before belongs, its state `\\x02` for the next number
    of `moves`: `ledger.machines.straight` writes them.
    """

    statuses: str
    """A JSON array."""
    initial: str | None = None
    """The status of a stream without events, where that is one of these."""

    def __str__(self) -> str:
        return f"status in {self.statuses}"


Expected = Exact | Anything | Exists | Guard | StandsIn

NEW: Final = Exact(0)
ANY: Final = Anything()
EXISTS: Final = Exists()


def as_expected(value: Expected | int) -> Expected:
    """A bare integer is an exact version. Raises BadInput for what is neither."""
    match value:
        case Exact() | Anything() | Exists() | Guard():
            return value
        case int():
            return Exact(value)
        case _:
            raise BadInput(
                f"expected {shown(value)} must be a version (an integer), NEW, ANY, EXISTS, Exact or Guard"
            )
