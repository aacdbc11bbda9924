"""
Topics of states and of views, published with the events that they follow from, in the same transaction.

    PREFIX.DOMAIN.states     the current state of each stream, folded by the domain's own `evolve`
    PREFIX.views.in_state    which stream entered which state: subscribe to "everything that enters state X"
    PREFIX.views.progress    the progress of each parent's set

They are compacted: Kafka keeps the last value of each key, so a reader that begins late gets one record a
stream. The relay publishes them; its checkpoint is theirs, too. A relay that is started without them, and
later with them, publishes what follows from later events; for all streams, publish the log anew under
another prefix (`pledger relay replay --states --views`).
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from ledger import BadInput, Ledger, Recorded, UnreadableEvent, split_name
from ledger.domain.known import KNOWN
from ledger.domain.state import dump
from ledger.errors import LedgerBusy
from ledger.log.sql import run
from projections.feeds import SQL as FEEDS
from projections.feeds import ProgressChange, ProgressChanges, StateChange, filling_of

from ..envelope import JSON, Headers, Outgoing, source_of, time_text
from ..routes import Routes, domain_of, partition_of

PATIENCE: Final = 10.0
"""Seconds for which a block waits for the view `progress`; then the relay begins it anew."""
PAUSE: Final = 0.005
PAGE: Final = 1_000
"""Sets that are read at once."""

_log = logging.getLogger(__name__)


class StateTopics:
    """The state of each stream that a block of events changed, as it is when the block is published.

    A value may contain events that come later in the topics of events: its `version` says which. The record
    of an item that was deleted has no value, so that Kafka forgets it. Streams of categories that this
    process does not know, or that cannot be folded, are left out.
    """

    def __init__(self, ledger: Ledger, prefix: str = "ledger") -> None:
        self.ledger, self.routes = ledger, Routes(prefix)
        self.source = source_of(ledger.identity.ledger)

    def begin(self, after: int) -> None:
        """Nothing: the states of a block follow from the block alone."""

    def topics(self, routes: Routes, domains: Iterable[str]) -> Mapping[str, int | None]:
        """One for each domain, with as many partitions as its events have."""
        return {routes.states(domain): None for domain in domains}

    def records(self, events: Sequence[Recorded], partitions: Mapping[str, int]) -> Iterator[Outgoing]:
        """One record for each stream of a block."""
        for stream in self._loaded(dict.fromkeys(event.stream for event in events)):
            topic = self.routes.states(domain_of(stream.name))
            yield _record(topic, partitions, stream.name, _state(stream), self._headers(stream))

    def _loaded(self, names: Iterable[str]) -> list[Any]:
        """The streams, loaded at once; one after the other if one of them cannot be folded."""
        streams = [opened for name in names if (opened := _opened(name)) is not None]
        try:
            return self.ledger.load_each(streams)
        except UnreadableEvent:
            return [found for one in streams for found in self._loaded_alone(one.name)]

    def _loaded_alone(self, name: str) -> list[Any]:
        try:
            return self.ledger.load_each([_opened(name)])
        except UnreadableEvent as error:
            _log.warning("the state of %s is not published: %s", name, error)
            return []

    def _headers(self, stream: Any) -> Headers:
        version = b"%d" % stream.version
        return [
            *_cloud_event(self.source, b"ledger.state", stream.name, stream.name.encode() + b"@" + version),
            ("ce_ledgerversion", version),
        ]


class ViewTopics:
    """Who entered which state, and the progress of sets, as the views `in_state` and `progress` say.

    Changes of states follow from the log. Progress is read from its view, which a projector must keep, or
    the appends: a block waits for it. Each set is told after its last change, with its value of that moment;
    so a long log costs one record a set, and not one a block. Raises BadInput if there is no such view.
    """

    def __init__(self, ledger: Ledger, prefix: str = "ledger") -> None:
        self.ledger, self.routes = ledger, Routes(prefix)
        self.source = source_of(ledger.identity.ledger)
        self._changes: ProgressChanges
        if filling_of(ledger, "progress") is None:
            raise BadInput("topics of views need the view progress: run `pledger views follow progress`")

    def begin(self, after: int) -> None:
        """Tell the sets that changed after this position."""
        self._changes = ProgressChanges(self.ledger, after=after, batch=PAGE)

    def topics(self, routes: Routes, domains: Iterable[str]) -> Mapping[str, int | None]:
        """The two topics."""
        return {routes.in_state: None, routes.progress: None}

    def records(self, events: Sequence[Recorded], partitions: Mapping[str, int]) -> Iterator[Outgoing]:
        """One record for each change of a state in a block, and for each set that changed since the last."""
        after, upto = events[0].position - 1, events[-1].position
        for change in self._moves(after, upto, len(events)):
            yield self._entered(change, partitions)
        self._wait_for_progress(upto)
        while changes := self._changes.poll():
            for progress in changes:
                yield self._progressed(progress, partitions)
            if self._changes.position >= upto:
                return  # what changed later comes with later blocks

    def _moves(self, after: int, upto: int, events: int) -> list[StateChange]:
        with self.ledger.reader() as connection:
            rows = run(
                connection, self.ledger.schema, FEEDS.state_changes, after=after, upto=upto, limit=events,
                start=None, statuses=None,
            )  # fmt: skip
        return [StateChange(*row[1:]) for row in rows if row[1] is not None]

    def _wait_for_progress(self, upto: int) -> None:
        """Wait until the view contains a position. Raises LedgerBusy."""
        deadline = time.monotonic() + PATIENCE
        while True:
            filling = filling_of(self.ledger, "progress")
            if filling is not None and (filling.inline or filling.position >= upto):
                return
            if time.monotonic() > deadline:
                at = 0 if filling is None else filling.position
                raise LedgerBusy(
                    f"the view progress is at position {at}, and the relay waits for {upto}: run "
                    "`pledger views follow progress`, or `pledger views attach progress`"
                )
            time.sleep(PAUSE)

    def _entered(self, change: StateChange, partitions: Mapping[str, int]) -> Outgoing:
        value = asdict(change) | {"at": time_text(change.at)}
        headers = [
            *_cloud_event(self.source, b"ledger.in_state", change.stream, b"%d" % change.position),
            ("ce_ledgerstatus", change.status.encode()),
        ]
        return _record(self.routes.in_state, partitions, change.stream, _text(value), headers)

    def _progressed(self, change: ProgressChange, partitions: Mapping[str, int]) -> Outgoing:
        value = asdict(change) | {"at": time_text(change.at)}
        key = f"{change.category} {change.parent}"
        headers = _cloud_event(self.source, b"ledger.progress", change.parent, b"%d" % change.position)
        return _record(self.routes.progress, partitions, key, _text(value), headers)


def _opened(name: str) -> Any:
    """The open stream of a name, with nothing loaded; None if this process knows no such category."""
    kind = KNOWN.streams.get(name.partition("/")[0])
    return None if kind is None else kind(*split_name(name)[1])


def _state(stream: Any) -> bytes | None:
    """The value of a stream's record; None for an item that was deleted."""
    status = getattr(stream.state, "status", None)
    if status == "deleted":
        return None
    return _text(
        {
            "stream": stream.name,
            "version": stream.version,
            "status": None if status is None else str(status),
            "state": json.loads(dump(stream.state)),
        }
    )


def _text(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _cloud_event(source: bytes, kind: bytes, subject: str, key: bytes) -> Headers:
    return [
        ("ce_specversion", b"1.0"),
        ("ce_id", key),
        ("ce_source", source),
        ("ce_type", kind),
        ("ce_subject", subject.encode()),
        ("content-type", JSON),
    ]


def _record(
    topic: str, partitions: Mapping[str, int], key: str, value: bytes | None, headers: Headers
) -> Outgoing:
    name = key.encode()
    return Outgoing(topic, partition_of(name, partitions[topic]), name, value, headers)
