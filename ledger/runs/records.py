"""
Records: what the server keeps that is not a run, such as flows, work pools and variables.

    (nothing) | deleted ──created──▶ present ──changed──▶ present ──deleted──▶ deleted

Every kind (`ledger.runs.kinds`) has streams of its own, `CATEGORY/ID`, and topics of its own,
`KIND.created`, `KIND.changed`, `KIND.deleted`. A kind with rules or facts of its own subclasses OpenRecord.
A record and its unique name are appended together.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar, Final, TypeVar

from pydantic import AwareDatetime

from ..domain.event import Event
from ..domain.frozen import FrozenDict, changed, frozen
from ..domain.moves import Moves
from ..domain.stream import Stream
from ..errors import RecordExists, RecordNotFound, StreamConflict
from ..log.append import Append, append_of
from ..log.ledger import Ledger
from ..log.retry import retry_conflicts
from .json_values import checked_uuid, new_id, plain, time_text, utc
from .kinds import KINDS, Kind, kind_of
from .names import Names, OpenName

T = TypeVar("T")


class RecordStatus(StrEnum):
    """Whether the record is there."""

    PRESENT = "present"
    DELETED = "deleted"


PRESENT, DELETED = RecordStatus.PRESENT, RecordStatus.DELETED
MOVES: Final = Moves({None: {PRESENT}, PRESENT: {PRESENT, DELETED}, DELETED: {PRESENT}})

# Facts: what happened, and the status it leads to. Each kind has classes of its own, made below.


class RecordFact(Event):
    """A fact of a record."""


class RecordCreated(RecordFact):
    """It was created. fields: all of them. since: when another system created it, where it is imported."""

    fields: dict[str, Any]
    since: AwareDatetime | None = None


class RecordChanged(RecordFact):
    """Some fields changed. fields: these, with their new values."""

    fields: dict[str, Any]


class RecordDeleted(RecordFact):
    """It was deleted."""


@dataclass(frozen=True, slots=True)
class KindFacts:
    """The classes of the facts of one kind."""

    created: type[RecordCreated]
    changed: type[RecordChanged]
    deleted: type[RecordDeleted]


def _facts_of(kind: Kind) -> KindFacts:
    return KindFacts(
        _fact(kind, RecordCreated, "created", PRESENT),
        _fact(kind, RecordChanged, "changed", PRESENT),
        _fact(kind, RecordDeleted, "deleted", DELETED),
    )


F = TypeVar("F", bound=RecordFact)


def _fact(kind: Kind, base: type[F], what: str, to: RecordStatus) -> type[F]:
    """The class of a fact of one kind, with the topic `KIND.what`."""
    words = kind.name.replace("_", " ")
    body = {"__module__": __name__, "__doc__": (base.__doc__ or "").replace("It", f"The {words}", 1)}
    name = "".join(map(str.capitalize, (*kind.name.split("_"), what)))
    topic = {"topic": f"{kind.name}.{what}", "to": to}
    return types.new_class(name, (base,), topic, lambda ns: ns.update(body))


FACTS: Final[Mapping[str, KindFacts]] = {name: _facts_of(kind) for name, kind in KINDS.items()}
"""The classes of facts of every kind, by its name."""

# State: what is true now.


@dataclass(frozen=True, slots=True)
class RecordState:
    """The state of a record's stream."""

    status: str | None = None
    created: datetime | None = None
    updated: datetime | None = None
    fields: Mapping[str, Any] = field(default_factory=FrozenDict)


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it is shown. version: of its stream. fields: with Prefect's names, deeply frozen."""

    kind: str
    id: str
    version: int
    created: datetime
    updated: datetime
    fields: Mapping[str, Any]
    deleted: bool = False

    def __getitem__(self, field: str) -> Any:
        return self.fields[field]

    def shown(self) -> dict[str, Any]:
        """Its JSON: id, created, updated, and its fields as plain dicts and lists."""
        times = {"created": time_text(self.created), "updated": time_text(self.updated)}
        return {"id": self.id, **times, **plain(self.fields)}


def evolve(record: Any, event: Event, at: datetime, /) -> Any:
    """Apply a fact of any kind to its state. It applies no rules."""
    match event:
        case RecordCreated():
            created = event.since or at
            return changed(record, status=event.to, created=created, updated=at, fields=frozen(event.fields))
        case RecordChanged():
            fields = FrozenDict({**record.fields, **event.fields})
            return changed(record, status=event.to, updated=at, fields=fields)
        case RecordDeleted():
            return changed(record, status=event.to, updated=at)
        case _:
            return record


# Decisions: what may happen next.


class OpenRecord(Stream[Any, Event]):
    """A record open for change; its key is its id. `open_class` returns the class of a kind."""

    MOVES, STATE = MOVES, RecordState
    KIND: ClassVar[Kind]
    evolve = staticmethod(evolve)

    def __init_subclass__(cls, kind: str = "", **kwargs: Any) -> None:
        if kind:
            cls.KIND = kind_of(kind)
            cls.CATEGORY = cls.KIND.category
            _CLASSES[kind] = cls
        super().__init_subclass__(**kwargs)

    @property
    def id(self) -> str:
        """Its id."""
        return str(self.key[0])

    @property
    def is_present(self) -> bool:
        """Whether it was created and not deleted."""
        return bool(self.state.status == PRESENT)

    @property
    def unique_name(self) -> tuple[str, ...] | None:
        """Its unique name; None if it has none, or is not there."""
        return self.KIND.name_of(self.state.fields) if self.is_present else None

    def create(self, fields: Mapping[str, Any], since: datetime | None = None) -> None:
        """Create it; missing fields get their defaults. Raises BadRecord, RecordExists."""
        if self.is_present:
            raise RecordExists(self.KIND.name, (self.id,), self.id)
        given = None if since is None else utc(since)
        self.record(FACTS[self.KIND.name].created(fields=self.KIND.checked(fields), since=given))

    def change(self, fields: Mapping[str, Any]) -> bool:
        """Change these fields; False where they have these values. Raises BadRecord, RecordNotFound."""
        self.require()
        if different := self.KIND.merged(plain(self.state.fields), fields):
            self.record(FACTS[self.KIND.name].changed(fields=different))
        return bool(different)

    def delete(self) -> None:
        """Delete it. Raises RecordNotFound."""
        self.require()
        self.record(FACTS[self.KIND.name].deleted())

    def require(self) -> None:
        """Raise RecordNotFound unless it is there."""
        if not self.is_present:
            raise RecordNotFound(self.KIND.name, self.id)

    def shown_fields(self) -> Mapping[str, Any]:
        """The fields that its Record has; a kind whose state holds more may add to them."""
        fields: Mapping[str, Any] = self.state.fields
        return fields

    def shown(self) -> Record:
        """The record as it is now, with what is decided and not yet appended. Raises RecordNotFound."""
        if self.state.status is None:
            raise RecordNotFound(self.KIND.name, self.id)
        state = self.state
        version = self.version + len(self.news)
        fields = self.shown_fields()
        return Record(
            self.KIND.name, self.id, version, state.created, state.updated, fields, not self.is_present
        )


_CLASSES: Final[dict[str, type[OpenRecord]]] = {}


def _class_of(kind: Kind) -> type[OpenRecord]:
    name = "Open" + "".join(map(str.capitalize, kind.name.split("_")))
    doc = f"A record of kind {kind.name} open for change."
    body = {"__module__": __name__, "__doc__": doc}
    return types.new_class(name, (OpenRecord,), {"kind": kind.name}, lambda ns: ns.update(body))


for _kind in KINDS.values():
    _class_of(_kind)


def open_class(kind: str) -> type[OpenRecord]:
    """The class of open records of a kind. Raises BadInput."""
    return _CLASSES[kind_of(kind).name]


class Records:
    """The records of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.names = ledger, Names(ledger)

    # Read

    def open(self, kind: str, id: str) -> OpenRecord:
        """A record open for change, present or not; `append_of` makes its append."""
        return self.ledger.load(open_class(kind), checked_uuid(id))

    def get(self, kind: str, id: str) -> Record:
        """The record of this id. Raises RecordNotFound."""
        opened = self.open(kind, id)
        opened.require()
        return opened.shown()

    def named(self, kind: str, *name: str) -> Record:
        """The record with this unique name. Raises RecordNotFound."""
        holder = self.names.holder(kind_of(kind).name, *name)
        if holder is None:
            raise RecordNotFound(kind, "/".join(name))
        return self.get(kind, holder)

    def below(self, kind: str, *parts: str) -> list[Record]:
        """The records whose unique names begin with these parts, by name: the queues of a pool."""
        holders = self.names.below(kind, *parts)
        streams = self.ledger.load_each([open_class(kind)(id) for id in holders.values()])
        found = {stream.id: stream.shown() for stream in streams if stream.is_present}
        return [found[holders[name]] for name in sorted(holders) if holders[name] in found]

    # Change

    def create(
        self,
        kind: str,
        fields: Mapping[str, Any],
        *,
        id: str | None = None,
        since: datetime | None = None,
        also: Sequence[Append] = (),
    ) -> Record:
        """Create a record; one append, no read before it.

        id: the client's own. since: when another system created it. also: appends that are recorded with it,
        or not at all. Raises BadRecord; RecordExists where the name or the id is taken, with the id of the
        one that has it.
        """
        made = checked_uuid(id) if id is not None else new_id()
        opened, *named = self.prepared(kind, fields, id=made, since=since)
        try:
            return self._committed(opened, named, also)
        except StreamConflict:
            return _again(lambda: self._create(kind, made, fields, since, also), also)

    def upsert(
        self, kind: str, fields: Mapping[str, Any], *, keep: bool = False, id: str | None = None
    ) -> tuple[Record, bool]:
        """The record with the unique name in these fields, created or changed to them; True if created.

        keep: leave an existing one as it is. id: of a new one. Raises BadRecord.
        """
        name = kind_of(kind).name_of(kind_of(kind).checked(fields))
        assert name is not None, f"records of kind {kind} have no unique names"

        def attempt() -> tuple[Record, bool]:
            holder = self.names.holder(kind, *name)
            if holder is None:
                try:
                    return self.create(kind, fields, id=id), True
                except RecordExists as taken:
                    if id is not None and taken.id == id:
                        raise
                    holder = taken.id
            opened = self.open(kind, holder)
            if not opened.is_present:
                raise StreamConflict(opened.name, "a record", opened.version)  # deleted meanwhile: again
            if not keep:
                opened.change(fields)
            self.ledger.commit(opened)
            return opened.shown(), False

        return retry_conflicts(attempt)

    def change(
        self,
        kind: str,
        id: str,
        fields: Mapping[str, Any],
        *,
        expected: int | None = None,
        also: Sequence[Append] = (),
    ) -> Record:
        """Change fields of a record; without a difference nothing is recorded, not even `also`.

        expected: the version that it must have. Raises BadRecord, RecordNotFound, StreamConflict, and
        RecordExists where a new name is taken.
        """
        return self.decide(kind, id, lambda opened: opened.change(fields), expected=expected, also=also)

    def delete(
        self, kind: str, id: str, *, expected: int | None = None, also: Sequence[Append] = ()
    ) -> Record:
        """Delete a record and free its name. Raises RecordNotFound, StreamConflict."""
        return self.decide(kind, id, lambda opened: opened.delete(), expected=expected, also=also)

    def decide(
        self,
        kind: str,
        id: str,
        decision: Callable[[Any], object],
        *,
        expected: int | None = None,
        also: Sequence[Append] = (),
    ) -> Record:
        """Open a record, call `decision` with it, and append what it decided, with the change of its name.

        It is decided again where another writer came first. Raises RecordNotFound, StreamConflict where the
        version is not `expected`, RecordExists, and what the decision raises.
        """

        def attempt() -> Record:
            opened = self.open(kind, id)
            opened.require()
            if expected is not None and opened.version != expected:
                raise StreamConflict(opened.name, f"version {expected}", opened.version)
            before = opened.unique_name
            decision(opened)
            return self._committed(opened, self._renamed(opened, before), also)

        return attempt() if expected is not None else _again(attempt, also)

    def append_of_change(self, kind: str, id: str, fields: Mapping[str, Any]) -> Append | None:
        """The append of a change that no unique name depends on; None where nothing changes.

        For who changes a record together with other streams. Raises BadRecord, RecordNotFound.
        """
        opened = self.open(kind, id)
        return append_of(opened) if opened.change(fields) else None

    def prepared(
        self, kind: str, fields: Mapping[str, Any], *, id: str | None = None, since: datetime | None = None
    ) -> tuple[OpenRecord, *tuple[OpenName, ...]]:
        """A new record and its name, open and not appended, as if nothing were recorded of them.

        For who creates a record together with other streams: a StreamConflict of the append says that the
        name or the id is taken. Raises BadRecord.
        """
        opened = open_class(kind)(checked_uuid(id) if id is not None else new_id())
        opened.create(fields, since)
        if (name := opened.unique_name) is None:
            return (opened,)
        named = OpenName(kind, *name)
        named.take(opened.id)
        return opened, named

    def _create(
        self,
        kind: str,
        id: str,
        fields: Mapping[str, Any],
        since: datetime | None,
        also: Sequence[Append],
    ) -> Record:
        """Create after a conflict: with what is there read first."""
        opened = self.open(kind, id)
        opened.create(fields, since)
        named = self._renamed(opened, None)
        return self._committed(opened, named, also)

    def _renamed(self, opened: OpenRecord, before: tuple[str, ...] | None) -> list[OpenName]:
        """The names that a decision frees and takes. Raises RecordExists."""
        after, kind = opened.unique_name, opened.KIND.name
        if after == before:
            return []
        changes = []
        if before is not None and (old := self.names.open(kind, *before)).holder == opened.id:
            old.free()
            changes.append(old)
        if after is not None:
            new = self.names.open(kind, *after)
            if new.holder is not None:
                raise RecordExists(kind, after, new.holder)
            new.take(opened.id)
            changes.append(new)
        return changes

    def _committed(self, opened: OpenRecord, named: Sequence[OpenName], also: Sequence[Append]) -> Record:
        self.ledger.commit(opened, *named, checks=also)
        return opened.shown()


def _again(decide: Callable[[], T], also: Sequence[Append]) -> T:
    """Decide again where another writer came first, except on the streams of `also`, which are not read."""
    others = {append.stream for append in also}

    def attempt() -> tuple[T | None, StreamConflict | None]:
        try:
            return decide(), None
        except StreamConflict as conflict:
            if conflict.stream not in others:
                raise
            return None, conflict

    done, lost = retry_conflicts(attempt)
    if lost is not None:
        raise lost
    return done  # type: ignore[return-value]  # a decision that returned
