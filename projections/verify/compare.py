"""Comparing a fold with the head of its stream."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

from ledger.domain import canonical_json
from ledger.domain.state import TREE, dump

from ..fold import Fold, HeadRow
from .difference import (
    Difference,
    Field,
    Kind,
    Summary,
    UnknownTopic,
    bounded,
    fields_between,
    shortened,
)


def differences(fold: Fold, head: HeadRow | None, count: Summary) -> Iterator[Difference]:
    """Everything that is wrong with a stream; what was checked is counted.

    A stream of another application, whose events are all bytes, needs no head. A state of an older version is
    no difference if it equals the fold up to that version: readers fold the rest.
    """
    count.streams += fold.events > 0
    count.events += fold.events
    for topic, many in fold.unknown.items():
        count.add(Summary(unknown={topic: UnknownTopic(many, 1, fold.stream)}))
    for problem in fold.problems:
        yield Difference(
            Kind(problem.kind), fold.stream, problem.version, problem.says, position=problem.position
        )
    if head is None:
        if fold.json:
            yield _of_head(Kind.HEAD_MISSING, fold, "the stream has events but no head")
        return
    count.heads += 1
    if not fold.events:
        says = f"there is a head at version {head.version}, but no event"
        yield _of_head(Kind.HEAD_ALONE, fold, says)
        return
    fields = [*_numbers(fold, head), *_status(fold, head), *_token(fold, head), *_state(fold, head, count)]
    if fields:
        yield _of_head(_kind(fold, head), fold, _sentence(fold, head), fields)


def _of_head(kind: Kind, fold: Fold, says: str, fields: list[Field] | None = None) -> Difference:
    return Difference(kind, fold.stream, fold.version, says, bounded(fields or []), fold.position or None)


def _kind(fold: Fold, head: HeadRow) -> Kind:
    if head.version == fold.version:
        return Kind.HEAD_DIFFERS
    return Kind.HEAD_BEHIND if head.version < fold.version else Kind.HEAD_AHEAD


def _sentence(fold: Fold, head: HeadRow) -> str:
    if head.version > fold.version:
        return (
            f"the head is at version {head.version}, but the events end at {fold.version}: were events lost?"
        )
    if head.version < fold.version:
        return f"the head is at version {head.version}, but the events go on to {fold.version}"
    return f"the head differs from its {fold.version} events"


def _numbers(fold: Fold, head: HeadRow) -> Iterator[Field]:
    if head.version != fold.version:
        yield Field("version", str(head.version), str(fold.version))


def _status(fold: Fold, head: HeadRow) -> Iterator[Field]:
    """Of two events in one append the one that moves the machine counts, so the last move is correct too.

    A status that no event holds was given with an append and cannot be derived again.
    """
    if head.version < fold.version or not fold.has_status:
        return  # a head that is behind has the earlier status
    if head.status not in (fold.status, fold.moved):
        yield Field("status", shortened(head.status), shortened(fold.status))


def _token(fold: Fold, head: HeadRow) -> Iterator[Field]:
    """The lease token, if events hold it; a head that is behind has the earlier one."""
    if head.version >= fold.version and fold.token is not None and (head.token or 0) != fold.token:
        yield Field("token", shortened(head.token), shortened(fold.token or None))


def _state(fold: Fold, head: HeadRow, count: Summary) -> Iterator[Field]:
    if head.state_version > fold.version or (head.state is None and head.state_version > 0):
        known = str(fold.version if fold.sure and head.state is not None else 0)
        yield Field("state_version", str(head.state_version), known)
    elif head.state is not None:
        if fold.opened is None or head.state_version > fold.folded:
            count.unsure += 1
        elif head.state_schema != fold.state_schema:
            count.old += 1
        else:
            yield from _same_code(fold, head, count)


def _same_code(fold: Fold, head: HeadRow, count: Summary) -> Iterator[Field]:
    """Compare a state that the same code folded with the fold at its version."""
    state = fold.at.get(head.state_version)
    if state is None or head.state is None:
        count.unsure += 1  # its version is in a gap
        return
    count.lagging += head.state_version < fold.version
    if head.state == as_stored(state):
        return
    found = [*fields_between(canonical_json.parsed(head.state), json.loads(dump(state)), "state")]
    if found and fold.unknown:
        count.unsure += 1  # a process with these topics may fold more into it
    else:
        yield from found


def as_stored(state: Any) -> str | None:
    """The text that JSONB returns for a state; None if the state holds more than plain values.

    An unequal text may still be the same JSON, and is compared by value, which is slower.
    """
    parts = []
    for prefix, name in _names(type(state)):
        value = getattr(state, name)
        write = _WRITERS.get(type(value))
        if write is not None:
            parts.append(prefix + write(value))
        elif value == ():
            parts.append(prefix + "[]")
        elif isinstance(value, str):  # a status
            parts.append(prefix + dump(value))
        else:
            return None
    return "{" + ", ".join(parts) + "}"


def _names_of(kind: type[Any]) -> list[tuple[str, str]]:
    """The fields that are kept, as JSONB orders them: by length, then by their bytes."""
    kept = [field.name for field in dataclasses.fields(kind) if not TREE.items() <= field.metadata.items()]
    return [
        (f'"{name}": ', name) for name in sorted(kept, key=lambda name: (len(name.encode()), name.encode()))
    ]


def _time(at: datetime) -> str:
    return f'"{at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds")}Z"'


_WRITERS: Final[dict[type[Any], Callable[[Any], str]]] = {
    type(None): lambda _: "null",
    bool: lambda value: "true" if value else "false",
    int: int.__repr__,
    str: json.JSONEncoder(ensure_ascii=False).encode,
    datetime: _time,
}
# A plain callable to the type checker: to it, a class is not always hashable.
_names: Callable[[Any], list[tuple[str, str]]] = cache(_names_of)
