"""
Views that are fed from Kafka: any view runs from a relay's topics, in a database that has no log.

    KafkaFeed(ledger.connect(dsn), views_named(["in_state"]), Cluster.of(None)).run(stop)

The events come in the order of the log (`consumers.kafka.merge`), and the view's own statements apply them
(`projections.engine.feed`), so that it equals the view which follows the log. The effects, the position and
the places in the topics are one transaction of PostgreSQL: whatever is killed, each event counts once.

The database needs `pledger init`, which makes an empty ledger with an id of its own: only a place for
views. It keeps the id of the ledger that the events are of, and refuses those of another one. The history
is identified by the ids of the topics and by the chain in each partition, since there is no log to look at.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import Final

from kafka import TopicPartition

from ledger import (
    BadInput,
    EventsMissing,
    KafkaUnavailable,
    Ledger,
    Recorded,
    ServerUnavailable,
    TopicMismatch,
)
from projections.engine.feed import Feed
from projections.engine.view import View

from .cluster import Cluster
from .envelope import Envelope
from .merge import Merge, Places, Spot
from .relay.checkpoint import read_checkpoint
from .routes import Routes

POLL: Final = 0.2
"""Seconds for which a read waits for records."""
PAUSE: Final = 1.0
"""Seconds between two attempts while Kafka or PostgreSQL is away."""

_log = logging.getLogger(__name__)


class KafkaFeed:
    """Feeds views with the events that a relay publishes under a prefix.

    ledger: where the views are. source: the ledger of the events, if it can be reached; only needed for
    bodies that are too large for a record. anew: build the views anew from the beginning of the topics, while
    readers see what is there; then go on. events: how many events were applied, counted once for all views;
    position: of the last one.
    """

    def __init__(
        self,
        ledger: Ledger,
        views: Sequence[View],
        cluster: Cluster,
        prefix: str = "ledger",
        *,
        source: Ledger | None = None,
        anew: bool = False,
    ) -> None:
        self.ledger, self.views, self.cluster, self.source = ledger, list(views), cluster, source
        self.routes = Routes(prefix)
        self.events, self.position = 0, 0
        self._anew = {view.name for view in views} if anew else set()

    def run(
        self,
        stop: threading.Event,
        until: int | None = None,
        moved: Callable[[int], None] = lambda position: None,
    ) -> None:
        """Feed until `stop` is set, or the views contain all events up to the position `until`.

        moved: called with the position after each batch. Outages of Kafka and PostgreSQL are waited for, and
        so is the first block of the relay.
        Raises TopicMismatch, ChainBroken, CursorMismatch, EventsMissing, BadInput, ViewFailed,
        DefinitionChanged.
        """
        last_error = ""
        while not stop.is_set():
            try:
                self._run(stop, until, moved)
                return
            except (KafkaUnavailable, ServerUnavailable) as error:
                if last_error != (last_error := str(error)):
                    _log.warning("the feed from %s tries again: %s", self.routes.prefix, error)
                stop.wait(PAUSE)

    def _run(self, stop: threading.Event, until: int | None, moved: Callable[[int], None]) -> None:
        if (checkpoint := read_checkpoint(self.cluster, self.routes)) is None:
            raise KafkaUnavailable(
                f"no relay has published anything under the prefix {self.routes.prefix} yet: "
                f"`pledger relay run --prefix {self.routes.prefix}`"
            )
        with ExitStack() as stack:
            feeds = [
                stack.enter_context(
                    Feed(self.ledger, view, checkpoint.cursor.ledger, anew=view.name in self._anew)
                )
                for view in self.views
            ]
            self._check_start(feeds, checkpoint.start)
            begin = least([Places.parse(feed.place) for feed in feeds])
            merge = stack.enter_context(closing(Merge(self.cluster, self.routes, checkpoint, begin)))
            while not stop.is_set():
                if events := [self._whole(each) for each in merge.poll(POLL)]:
                    self._take(feeds, events, str(merge.places))
                    moved(self.position)
                self._anew -= {feed.view.name for feed in feeds if feed.anew and feed.show()}
                if until is not None and merge.watermark >= until and not self._anew:
                    return

    def _check_start(self, feeds: Sequence[Feed], start: int) -> None:
        """Refuse topics that begin later in the log than a view ends."""
        for feed in feeds:
            if (position := feed.position) < start:
                raise EventsMissing(feed.view.name, position, start)

    def _take(self, feeds: Sequence[Feed], events: list[Recorded], place: str) -> None:
        self.events += max(feed.take(events, place=place) for feed in feeds)
        self.position = events[-1].position

    def _whole(self, envelope: Envelope) -> Recorded:
        """The event of an envelope, with a body that was too large for it."""
        event = envelope.event
        if not envelope.by_reference:
            return event
        found = None if self.source is None else self.source.event_at(event.position)
        if found is None:
            raise BadInput(
                f"event {event.position} is too large for a record of Kafka, and is read from its ledger: "
                "name that with --source"
            )
        return found


def least(places: Sequence[Places]) -> Places:
    """Where a reader must begin so that it misses nothing behind any of some places.

    Raises TopicMismatch if they are in different topics of the same name.
    """
    if not all(one.ids for one in places):
        return Places()
    ids: dict[str, str] = {}
    spots: dict[TopicPartition, Spot] = {}
    for one in places:
        for topic, topic_id in one.ids.items():
            if ids.setdefault(topic, topic_id) != topic_id:
                raise TopicMismatch(
                    topic, "views of this database were fed from two topics of this name",
                    "feed those views in another process",
                )  # fmt: skip
    for place in {place for one in places for place in one.spots}:
        spots[place] = min(one.spots.get(place, Spot()) for one in places)
    return Places(ids, spots)
