"""A stream at a moment: its last event then, its status, and its state if an imported domain folds it."""

from __future__ import annotations

from typing import Any, NamedTuple

from ledger import BadName, Ledger, Recorded, Stream, split_name
from ledger.domain.known import KNOWN
from ledger.machines.definition_stream import MachineDefinition
from ledger.machines.transition import stream_of as machine_stream_of

from .fold import stream_of
from .moments import AsOf, Moment
from .states import Question, states


class Snapshot(NamedTuple):
    """A stream at a moment: its last event then, and the folded stream, None if no imported domain has it.

    found: the moment that was asked for; None for now.
    """

    last: Recorded
    opened: Stream[Any, Any] | None
    status: str | None
    found: AsOf | None = None


def snapshot_now(ledger: Ledger, name: str) -> Snapshot:
    """A stream as it is now. Raises StreamNotFound, UnreadableEvent."""
    (last,) = ledger.read(name, limit=1, backwards=True)
    know_machine(ledger, name)
    stream = stream_of(name)
    if stream is None:
        head = ledger.head(name)
        return Snapshot(
            last, None, head.status if head is not None and head.version == last.version else None
        )
    opened = ledger.load(type(stream), *stream.key)
    if opened.version != last.version:  # another writer has appended since
        (last,) = ledger.read(name, after=opened.version - 1, upto=opened.version)
    return Snapshot(last, opened, _status(opened))


def snapshot_at(ledger: Ledger, name: str, found: AsOf) -> Snapshot | None:
    """A stream as of what `as_of` found for it; None if it had no event then. Raises UnreadableEvent."""
    if not found.version:
        return None
    (last,) = ledger.read(name, after=found.version - 1, upto=found.version)
    know_machine(ledger, name)
    stream = stream_of(name)
    if stream is None:
        _, rows = states(ledger, Question(Moment(position=last.position), stream=name))
        return Snapshot(last, None, rows[0].status if rows else None, found)
    opened = ledger.load(type(stream), *stream.key, version=found.version)
    return Snapshot(last, opened, _status(opened), found)


def know_machine(ledger: Ledger, stream: str) -> None:
    """Make the stream class of a machine whose module is not imported, if the ledger has its definition."""
    category, _ = split_name(stream)
    if category in KNOWN.streams or ledger.head(MachineDefinition.name_of(category)) is None:
        return
    try:
        machine_stream_of(category)
    except BadName:
        return  # not a stream of a machine


def _status(opened: Stream[Any, Any]) -> str | None:
    return None if opened.state.status is None else str(opened.state.status)
