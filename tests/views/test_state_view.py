"""Views of states: a row is what `evolve` makes of its stream, wherever its state is taken from."""

from __future__ import annotations

import json
import random
from typing import Any

import psycopg
import pytest

from ledger import Body, DefinitionChanged, Ledger
from ledger.domain.known import KNOWN
from ledger.domain.state import dump
from projections import Projector, StateView, rebuild
from projections.engine.check import ViewCheck
from projections.engine.copies import Copies, projecting
from projections.engine.feed import Feed
from projections.engine.refold import refold, retry
from projections.engine.view import View
from projections.time_travel import as_of
from projections.verify import verify
from projections.verify.difference import Difference
from tests.lamp import LampMade, LampRead, LampSwitchedOn, OpenLamp
from tests.views.lamps import lamps
from tests.views.views_of_tests import declare, parked

__all__ = ["declare"]

Connection = psycopg.Connection[Any]
PARTS: dict[str, Any] = {
    "streams": (OpenLamp,),
    "born": (LampMade.topic,),
    "tables": """CREATE TABLE {bulbs} (
        position bigint           NOT NULL,
        version  bigint           NOT NULL,
        made_at  timestamptz      NOT NULL,
        watts    double precision NOT NULL,
        reads    bigint           NOT NULL,
        stream   text             COLLATE "C" PRIMARY KEY,
        status   text             COLLATE "C" NOT NULL,
        state    jsonb            NOT NULL
    )""",
    "picks": {"reads": "(s.state ->> 'read')::bigint"},
    "forget": ("DELETE FROM {bulbs} WHERE stream IN {streams}",),
}


@pytest.fixture
def bulbs(declare: Any) -> View:
    """A view of lamps, for one test."""
    declare("watts")  # what is declared here is forgotten at the end
    type("Bulbs", (StateView,), {"name": "bulbs", **PARTS})
    return KNOWN.views["bulbs"]


def rows(connection: Connection, schema: str = "ledger_views") -> list[dict[str, Any]]:
    found = connection.execute(f'SELECT to_jsonb(b) FROM {schema}.bulbs b ORDER BY stream COLLATE "C"')
    return [row for (row,) in found]


def by_hand(log: Ledger, upto: int | None = None) -> list[dict[str, Any]]:
    """The rows, by `evolve` from the first event of each stream on."""
    opened: dict[str, OpenLamp] = {}
    first: dict[str, int] = {}
    for event in log.log(0, log.bound() if upto is None else upto, 10**6):
        lamp = opened.setdefault(event.stream, OpenLamp(event.stream.split("/")[1]))
        lamp.replay(event.event, event.recorded_at)
        first.setdefault(event.stream, event.position)
    return [
        {"position": first[name], "version": lamp.version, "watts": lamp.state.watts, "stream": name,
         "reads": lamp.state.read, "status": lamp.state.status, "state": json.loads(dump(lamp.state))}
        for name, lamp in sorted(opened.items())
    ]  # fmt: skip


def told(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows as `by_hand` has them: `made_at` is in the state too."""
    return [{name: value for name, value in row.items() if name != "made_at"} for row in found]


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_rows_are_the_states_wherever_batches_end(
    log: Ledger, connection: Connection, bulbs: View, batch: int
) -> None:
    for _ in range(4):
        lamps(log, 12)
    Projector(log, [bulbs], batch=batch).catch_up()  # most heads are ahead of small batches
    assert told(rows(connection)) == by_hand(log)
    lamps(log, 12)
    Projector(log, [bulbs]).catch_up()  # all heads stand where the batch ends
    assert told(rows(connection)) == by_hand(log)
    assert not rebuild(log, bulbs).differences


def test_heads_without_a_state_are_folded(
    log: Ledger, connection: Connection, bulbs: View, admin_dsn: str
) -> None:
    lamps(log, 9)
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute("UPDATE ledger.heads SET state = NULL, state_version = 0 WHERE stream < 'lamp/4'")
        admin.execute("UPDATE ledger.heads SET state_schema = 1 WHERE stream > 'lamp/6'")
    Projector(log, [bulbs]).catch_up()
    assert told(rows(connection)) == by_hand(log)


def test_the_past_and_a_feed_come_to_the_same_rows(log: Ledger, connection: Connection, bulbs: View) -> None:
    lamps(log, 8)
    middle = log.bound()
    for _ in range(3):
        lamps(log, 10)
    past = as_of(log, position=middle, views=[bulbs], batch=5)
    assert told(rows(connection, past.schema)) == by_hand(log, middle)
    Projector(log, [bulbs]).catch_up(0)
    events = log.log(0, log.bound(), 10**6)
    with Feed(log, bulbs) as feed:
        for start in range(0, len(events), 9):
            feed.take(events[start : start + 9])
    assert told(rows(connection)) == by_hand(log)


def test_only_what_was_born_has_a_row(log: Ledger, connection: Connection, bulbs: View) -> None:
    log.append("lamp/early", LampRead())
    log.append("lamp/early", LampMade())
    log.append("torch/1", LampMade())
    log.append("lamp/late", LampMade())
    log.append("lamp/late", Body("lamp.painted", 1, "{}"))  # nobody here knows that topic
    Projector(log, [bulbs], batch=1).catch_up()
    assert [(row["stream"], row["version"]) for row in rows(connection)] == [("lamp/late", 2)]
    rebuilt = rebuild(log, bulbs)
    assert not rebuilt.differences
    assert [(row["stream"], row["version"]) for row in rows(connection)] == [("lamp/late", 2)]


def test_an_event_that_fails_parks_its_stream(
    log: Ledger, connection: Connection, bulbs: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        log.append(f"lamp/{number}", LampMade(watts=number))
    log.append("lamp/1", Body(LampRead.topic, 1, '{"value": "bad"}'))
    log.append("lamp/2", LampSwitchedOn())
    evolve = OpenLamp.evolve

    def failing(state: Any, event: Any, at: Any) -> Any:
        if getattr(event, "value", None) == "bad":
            raise ValueError("no such value")
        return evolve(state, event, at)

    with monkeypatch.context() as patched:
        patched.setattr(OpenLamp, "evolve", staticmethod(failing))
        Projector(log, [bulbs]).catch_up()
        assert [(stream, position) for stream, position, _ in parked(connection)] == [("lamp/1", 4)]
        assert [(row["version"], row["status"]) for row in rows(connection)] == [
            (1, "made"), (1, "made"), (2, "on")
        ]  # fmt: skip
    log.append("lamp/1", LampSwitchedOn())
    Projector(log, [bulbs]).catch_up()
    with projecting(log) as own:
        assert retry(Copies(own, log.schema), bulbs, 1, "lamp/1")
    assert told(rows(connection)) == by_hand(log)


def test_a_part_is_folded_anew(log: Ledger, connection: Connection, bulbs: View) -> None:
    for _ in range(3):
        lamps(log, 6)
    Projector(log, [bulbs]).catch_up()
    before = rows(connection)
    with projecting(log) as own:
        own.execute("UPDATE ledger_views.bulbs_1 SET state = '{}', watts = 7")
        assert refold(Copies(own, log.schema), bulbs, 1, category="lamp") == 6
    assert rows(connection) == before


def test_a_check_finds_what_is_wrong(log: Ledger, connection: Connection, bulbs: View) -> None:
    lamps(log, 5)
    Projector(log, [bulbs]).catch_up()
    with projecting(log) as own:
        own.execute(
            "UPDATE ledger_views.bulbs_1 SET state = state || '{\"read\": 9}' WHERE stream = 'lamp/3'"
        )
    found: list[Difference] = []
    verify(log, processes=1, checks=[ViewCheck(bulbs)], found=found.append)
    assert [(one.about, [field.name for field in one.fields]) for one in found] == [
        ("lamp/3", ["state.read"])
    ]


def test_states_that_are_folded_otherwise_need_a_rebuild(
    log: Ledger, connection: Connection, bulbs: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    lamps(log, 2)
    Projector(log, [bulbs]).catch_up()
    monkeypatch.setattr(OpenLamp, "state_schema", classmethod(lambda cls: 42))
    with pytest.raises(DefinitionChanged):
        Projector(log, [bulbs]).catch_up()
    assert rebuild(log, bulbs).switched
    assert told(rows(connection)) == by_hand(log)


def test_a_table_of_states_has_its_columns(declare: Any) -> None:
    declare("watts")
    parts = PARTS | {"tables": PARTS["tables"].replace("state ", "other ")}
    with pytest.raises(TypeError, match="its table bulbs has no column state"):
        type("Bulbs", (StateView,), {"name": "bulbs", **parts})


def test_random_histories_in_random_batches(log: Ledger, connection: Connection, bulbs: View) -> None:
    chance = random.Random(4)
    for _ in range(12):
        lamps(log, chance.randrange(1, 9))
        if chance.random() < 0.6:
            Projector(log, [bulbs], batch=chance.randrange(1, 20)).catch_up()
    Projector(log, [bulbs]).catch_up()
    assert told(rows(connection)) == by_hand(log)
