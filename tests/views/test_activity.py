"""Activity: events by actor, day and category, wherever batches are cut."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import BadInput, Ledger, acting
from ledger.domain.known import KNOWN
from projections.engine.copies import Copies, projecting
from projections.engine.projector import Projector
from projections.engine.refold import refold
from projections.views.activity import Activity
from tests.lamp import LampMade, LampSwitchedOn
from tests.views.histories import Feeding, Row, cuttings, times

ACTIVITY = KNOWN.views[Activity.name]
Counted = dict[tuple[str, str, str], tuple[int, datetime, datetime]]


@pytest.fixture
def copies(log: Ledger) -> Iterator[Copies]:
    with projecting(log) as connection:
        yield Copies(connection, log.schema)


def by_hand(rows: list[Row]) -> Counted:
    """Events, first and last time, by actor, day and category."""
    found: Counted = {}
    for row in rows:
        actor = (row.meta or {}).get("actor") or ""
        key = (actor, row.recorded_at.astimezone(UTC).date().isoformat(), row.stream.split("/")[0])
        many, first, last = found.get(key, (0, row.recorded_at, row.recorded_at))
        found[key] = (many + 1, min(first, row.recorded_at), max(last, row.recorded_at))
    return found


def counted(rows: list[dict[str, Any]]) -> Counted:
    """The same, as a copy has it."""
    return {
        (row["actor"], row["day"], row["category"]): (
            row["events"],
            datetime.fromisoformat(row["first_at"]),
            datetime.fromisoformat(row["last_at"]),
        )
        for row in rows
    }


metas = st.none() | st.fixed_dictionaries({}, optional={"actor": st.sampled_from(["ä", "b %", None, ""])})
events = st.lists(
    st.tuples(times, st.sampled_from(["lamp/1", "lamp/2/x", "lsm.strip/p"]), metas), max_size=30
)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Row], list[int]]:
    drawn = draw(events)
    rows = [Row(n, at, n, stream, "x.y", {}, meta) for n, (at, stream, meta) in enumerate(drawn, 1)]
    return rows, draw(cuttings(len(rows)))


def test_counts_are_those_of_a_plain_fold_wherever_batches_are_cut(copies: Copies) -> None:
    feeding = Feeding(copies, ACTIVITY)

    @settings(max_examples=40, deadline=None, database=None)
    @given(drawn=histories())
    def law(drawn: tuple[list[Row], list[int]]) -> None:
        rows, cuts = drawn
        feeding.rows(rows)
        at_once = feeding.fill([len(rows)])
        assert feeding.fill(cuts) == at_once
        assert counted(at_once) == by_hand(rows)

    law()


def test_the_day_is_that_of_recording_and_not_the_claimed_one(
    log: Ledger, connection: psycopg.Connection[Any]
) -> None:
    with acting(actor="mina", claimed_at=datetime.now(UTC) - timedelta(days=400)):
        log.append("lamp/1", LampMade(), LampSwitchedOn())
    log.append("lamp/2", LampMade())
    Projector(log, [ACTIVITY]).catch_up()
    recorded = log.read("lamp/1")[0].recorded_at.astimezone(UTC).date()
    found = connection.execute(
        "SELECT actor, day, category, events FROM ledger_views.activity ORDER BY actor"
    )
    assert found.fetchall() == [("mina", recorded, "lamp", 2), ("tester", recorded, "lamp", 1)]


def test_a_part_cannot_be_rebuilt(log: Ledger, copies: Copies) -> None:
    Projector(log, [ACTIVITY]).catch_up()
    with pytest.raises(BadInput, match="sums over streams"):
        refold(copies, ACTIVITY, 1, category="lamp")
