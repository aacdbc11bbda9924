"""Who an item is: frozen, validated ids, each level extending the one above it (spec 1.3, 1.4)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any, Self

from ..errors import BadInput
from ..names import checked_id, project_key, stream_name


@dataclass(frozen=True)
class Ident:
    """A project's name, and the ids on the way down to an item.

    Raises BadName for a name that is empty or that PostgreSQL cannot hold, and for an id that is not an
    integer of 0 or more.
    """

    project_name: str

    def __post_init__(self) -> None:
        try:
            self.key  # noqa: B018 - checked when it is made, and remembered
        except TypeError as error:  # what cannot be a part may be no key of a dict either
            if not isinstance(error, BadInput):
                self.key_of([getattr(self, name) for name in self.fields()])
            raise

    def __str__(self) -> str:
        return " ".join(f"{name}={getattr(self, name)!r}" for name in self.fields())

    @cached_property
    def key(self) -> tuple[str | int, ...]:
        """The parts of the stream's name; two spellings of one project have the same."""
        kind: Any = type(self)  # to the type checker, a class is not always hashable
        return _key(kind, *[getattr(self, name) for name in self.fields()])

    @classmethod
    @cache
    def fields(cls) -> tuple[str, ...]:
        """The names of the parts, from the project down."""
        return tuple(field.name for field in dataclasses.fields(cls))

    @classmethod
    def key_of(cls, parts: Sequence[str | int]) -> tuple[str | int, ...]:
        """The key of the item with these parts, checked."""
        names = cls.fields()
        if len(parts) != len(names):
            raise BadInput(f"a {cls.__name__} has {', '.join(names)}; {len(parts)} parts were given")
        ids = [checked_id(name, part) for name, part in zip(names[1:], parts[1:], strict=True)]  # type: ignore[arg-type]
        return (project_key(parts[0]), *ids)  # type: ignore[arg-type]

    @classmethod
    def of(cls, given: Ident | str, ids: dict[str, int | None]) -> Self:
        """The ident that a caller means: one of this level or below it, or a project's name and ids."""
        ids = {name: value for name, value in ids.items() if value is not None}
        if isinstance(given, Ident):
            if not isinstance(given, cls):
                raise BadInput(f"{given} is a {type(given).__name__}; a {cls.__name__} is needed here")
            if ids:
                raise BadInput(f"{given} says it all: give an ident, or a project's name with ids, not both")
            return given if type(given) is cls else cls(*(getattr(given, name) for name in cls.fields()))
        if missing := [name for name in cls.fields()[1:] if name not in ids]:
            raise BadInput(
                f"{' and '.join(missing)} must be given: a {cls.__name__} has {', '.join(cls.fields())}"
            )
        return cls(given, **ids)


@lru_cache(maxsize=20_000, typed=True)
def _key(kind: Any, *parts: str | int) -> tuple[str | int, ...]:
    """The key of an ident, which must have room in a stream's name; remembered, as workers make many."""
    key: tuple[str | int, ...] = kind.key_of(parts)
    stream_name("project", *key)
    return key


@dataclass(frozen=True)
class LSMProjectId(Ident):
    """A project."""


@dataclass(frozen=True)
class LSMSliceId(LSMProjectId):
    """A slice of a project."""

    slice_id: int


@dataclass(frozen=True)
class LSMChannelId(LSMSliceId):
    """A channel of a slice."""

    channel_id: int


@dataclass(frozen=True)
class LSMStripId(LSMChannelId):
    """A strip of a channel."""

    strip_id: int


@dataclass(frozen=True)
class OCTProjectId(Ident):
    """A project."""


@dataclass(frozen=True)
class OCTSliceId(OCTProjectId):
    """A slice of a project."""

    slice_id: int


@dataclass(frozen=True)
class OCTMosaicId(OCTSliceId):
    """A mosaic of a slice."""

    mosaic_id: int


@dataclass(frozen=True)
class OCTBatchId(OCTMosaicId):
    """A batch of a mosaic."""

    batch_id: int
