"""The stock library's way to a view: `ProjectionRunner` with a counting view, one transaction an event."""

from __future__ import annotations

import time
from typing import Any, ClassVar
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

from eventsourcing.application import Application
from eventsourcing.domain import CanMutateProtocol, DomainEvent
from eventsourcing.persistence import Tracking
from eventsourcing.postgres import PostgresTrackingRecorder
from eventsourcing.projection import Projection, ProjectionRunner
from psycopg.conninfo import conninfo_to_dict
from psycopg.sql import SQL, Identifier

from ledger import Recorded


class Fact(DomainEvent):
    """One of our events as the library would hold it."""

    fact: str
    body: str


class Facts(Application[Any]):
    """An application that only holds events."""


class Counts(PostgresTrackingRecorder):
    """How many events of each topic there are, as a table."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.counts = f"{self.tracking_table_name}_counts"
        name = Identifier(self.datastore.schema, self.counts)
        create = "CREATE TABLE IF NOT EXISTS {} (fact text PRIMARY KEY, events bigint NOT NULL)"
        self.sql_create_statements.append(SQL(create).format(name))
        self.count_statement = SQL(
            "INSERT INTO {} AS c VALUES (%s, 1) ON CONFLICT (fact) DO UPDATE SET events = c.events + 1"
        ).format(name)

    def count(self, fact: str, tracking: Tracking) -> None:
        """Count an event, with its tracking, in one transaction."""
        with self.datastore.transaction(commit=True) as cursor:
            self._insert_tracking(cursor, tracking)
            cursor.execute(self.count_statement, (fact,), prepare=True)


class Counting(Projection[Counts]):
    """The projection that counts."""

    name: ClassVar[str] = "counting"

    def process_event(self, domain_event: CanMutateProtocol[Any], tracking: Tracking) -> None:
        """Count one event."""
        assert isinstance(domain_event, Fact)
        self.view.count(domain_event.fact, tracking)


def environment(dsn: str) -> dict[str, str]:
    """The library's settings for this database."""
    parts = conninfo_to_dict(dsn)
    return {
        "PERSISTENCE_MODULE": "eventsourcing.postgres",
        "POSTGRES_DBNAME": str(parts["dbname"]),
        "POSTGRES_HOST": quote(str(parts["host"]), safe="/"),
        "POSTGRES_PORT": str(parts.get("port", 5432)),
        "POSTGRES_USER": str(parts["user"]),
        "POSTGRES_PASSWORD": str(parts["password"]),
        "POSTGRES_SCHEMA": "public",
    }


def store(dsn: str, events: list[Recorded]) -> None:
    """Put the same events into the library's own store."""
    application = Facts(env=environment(dsn))
    facts = [
        application.mapper.to_stored_event(
            Fact(
                originator_id=uuid5(NAMESPACE_URL, event.stream),
                originator_version=event.version,
                timestamp=event.recorded_at,
                fact=event.topic,
                body=event.data or "",
            )
        )
        for event in events
    ]
    for start in range(0, len(facts), 1000):
        application.recorder.insert_events(facts[start : start + 1000])
    application.close()


def stock_rate(dsn: str, events: list[Recorded]) -> float:
    """Events a second of the library's runner over these events."""
    store(dsn, events)
    last = len(events)
    begin = time.perf_counter()
    with ProjectionRunner(
        application_class=Facts, projection_class=Counting, view_class=Counts, env=environment(dsn)
    ) as runner:
        runner.wait(notification_id=last, timeout=600)
        return last / (time.perf_counter() - begin)
