"""A random history, and what a plain fold says of it as of a position."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import psycopg
from psycopg import sql

from ledger import Body, Ledger
from ledger.domain.event import Event
from ledger.domain.known import KNOWN
from ledger.domain.state import dump
from ledger.domain.topics import leads_to
from ledger.pipelines import LSMStateService, LSMStripId
from projections import shipped
from projections.engine.projector import views_named
from projections.time_travel import Past
from tests.lamp import OpenLamp
from tests.views.lamps import lamps

Connection = psycopg.Connection[Any]
shipped.load()
SHIPPED = [view for view in views_named([]) if type(view).__module__.startswith("projections.")]
IN_STATE = KNOWN.views["in_state"]


def rows(connection: Connection, schema: str, table: str) -> list[tuple[Any, ...]]:
    """All rows of a table, sorted."""
    found = connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(schema, table)))
    return sorted(found.fetchall(), key=repr)


def history(log: Ledger, many: int, seed: int = 7) -> None:
    """Lamps, strips of a project, another application's bytes, and a stream without a head."""
    chance = random.Random(seed)
    service = LSMStateService(log)
    for number in range(many):
        lamps(log, chance.randrange(1, 6))
        with service.open_strip(LSMStripId("brain", 1, 0, chance.randrange(8))) as strip:
            if strip.processing_state == "pending":
                strip.mark_started()
            elif strip.processing_state == "running":
                chance.choice([strip.mark_completed, strip.mark_failed])()
        log.append(f"other/{number % 3}", Body("anything", 1, None, b"\0"), head=False)
        log.append("torch/a", Body("torch.lit", 1, "{}"))


def by_hand(log: Ledger, position: int) -> tuple[list[Any], dict[str, int], dict[str, str]]:
    """What a plain fold says: who is in which state, the versions, and the states of lamps as JSON."""
    states: dict[str, tuple[Any, ...]] = {}
    versions: Counter[str] = Counter()
    opened: dict[str, OpenLamp] = {}
    for event in log.log(0, position, 10**6):
        versions[event.stream] += 1
        fact = event.event
        if isinstance(fact, Event) and (to := leads_to(fact)) is not None:
            states[event.stream] = (event.stream, to, event.version, event.position)
        if event.stream.startswith("lamp/"):
            lamp = opened.setdefault(event.stream, OpenLamp(event.stream.removeprefix("lamp/")))
            lamp.replay(fact, event.recorded_at)
    return sorted(states.values()), dict(versions), {name: dump(o.state) for name, o in opened.items()}


def check(log: Ledger, connection: Connection, past: Past) -> None:
    """The past is what the plain fold says, in itself and with its counters."""
    states, versions, folded = by_hand(log, past.position)
    of = sql.Identifier(past.schema)

    def ask(text: str) -> list[tuple[Any, ...]]:
        return connection.execute(sql.SQL(text).format(past=of)).fetchall()  # type: ignore[arg-type]

    assert sorted(ask("SELECT stream, status, version, position FROM {past}.in_state")) == states
    counts = Counter((stream.partition("/")[0], status) for stream, status, *_ in states)
    assert {
        (c, s): n for c, s, n in ask("SELECT category, status, streams FROM {past}.in_state_counts")
    } == counts
    heads = {row[0]: row[1:] for row in ask("SELECT stream, version, status, state::text FROM {past}.heads")}
    assert {stream: head[0] for stream, head in heads.items()} == versions
    assert {s: head[1] for s, head in heads.items() if head[1]} == {s: status for s, status, *_ in states}
    assert {s: json.loads(heads[s][2]) for s in folded} == {s: json.loads(text) for s, text in folded.items()}
    assert heads.get("other/0", (0, None, None))[1:] == (None, None)
    ((events, last),) = ask("SELECT count(*), coalesce(max(position), 0) FROM {past}.events")
    assert (events, past.streams) == (past.events, len(versions))
    assert events == sum(versions.values())
    assert last <= past.position
