"""
Announcing domains to a ledger, so that views know statuses and sets of domains that they have not imported.

`announce` announces what this process has imported; `FirstAppends` does it before a domain's first append.
Each is one statement, which takes no lock if nothing is new.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..domain.domain import OTHERS, Domain, announcement, domain_of
from ..domain.known import KNOWN
from ..domain.topics import TopicStatus, topic_status
from ..errors import NoPermission
from .append import Append
from .pool import Connection
from .sql import Statements, run

if TYPE_CHECKING:
    from .ledger import Ledger

SQL = Statements(__package__, "announce")


def announce(ledger: Ledger, *domains: Domain) -> list[str]:
    """Announce domains, by default all that this process has imported; returns the names of what is new.

    It replaces earlier announcements that differ. Needs the writer's or the projector's role.
    Raises BadName, NoPermission.
    """
    parts = announcement(domains or KNOWN.domains.values())
    with ledger.reader() as connection:
        return _announce(connection, ledger.schema, parts)


def announce_statuses(ledger: Ledger, statuses: Mapping[str, TopicStatus]) -> list[str]:
    """Announce the statuses that topics lead to, also without event classes; returns the new topics."""
    with ledger.reader() as connection:
        return announce_statuses_on(connection, ledger.schema, statuses)


def announce_statuses_on(
    connection: Connection, schema: str, statuses: Mapping[str, TopicStatus]
) -> list[str]:
    """The same on a connection, in its transaction. Raises psycopg's errors."""
    return _announce(connection, schema, announcement((), statuses))


def announced_statuses(connection: Connection, schema: str) -> dict[str, TopicStatus]:
    """The statuses that topics lead to, as they were announced."""
    rows = run(connection, schema, SQL.topic_statuses)
    return {topic: TopicStatus(status, field) for topic, status, field in rows}


def _announce(
    connection: Connection, schema: str, parts: Mapping[str, list[Any]], *, only_new: bool = False
) -> list[str]:
    rows = run(connection, schema, SQL.announce, parts=json.dumps(parts), only_new=only_new)
    return list(rows[0][0])


class FirstAppends:
    """Announces a user's domain before this process appends its first event.

    Every follower announces the domains of this package. Earlier announcements stay unchanged; a login that
    may not announce leaves it to the followers of the log.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.seen: set[str] = set()
        """The topics that need no announcement any more."""

    def announce(self, appends: Sequence[Append]) -> None:
        """One call to the server where there are topics that this process appends for the first time."""
        seen = self.seen
        for append in appends:
            for body in append.events:
                if body.topic not in seen:
                    return self.announce_topics({one.topic for each in appends for one in each.events})
        return None

    def announce_topics(self, topics: set[str]) -> None:
        """Announce the domains of topics that are new here; a topic of no domain alone."""
        new = topics - self.seen
        kinds = {topic: KNOWN.events[topic] for topic in new if topic in KNOWN.events}
        domains = {domain_of(kind) for kind in kinds.values()} - {OTHERS}
        single = {
            topic: status
            for topic, kind in kinds.items()
            if OTHERS.owns(kind) and (status := topic_status(kind))
        }
        parts = announcement((domain for domain in domains if not domain.is_shipped), single)
        if any(parts.values()):
            with suppress(NoPermission), self._ledger.reader() as connection:
                _announce(connection, self._ledger.schema, parts, only_new=True)
        self.seen |= new.union(*(domain.events for domain in domains))
