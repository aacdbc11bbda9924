"""What contradicts the events may be the only trace of what was lost or changed: it is named, and left."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

import projections.views.in_state  # noqa: F401  declares the view
from ledger import Ledger
from ledger.domain.known import KNOWN
from projections.engine.check import ViewCheck
from projections.engine.projector import Projector
from projections.fold import Which
from projections.verify import rebuild_heads
from projections.verify.difference import Kind
from tests.verify.damage import heads, tamper, use
from tests.verify.test_verify import run

Connection = psycopg.Connection[Any]


@pytest.fixture
def used(log: Ledger) -> Ledger:
    use(log)
    return log


def test_what_is_kept_of_streams_in_doubt_is_evidence(used: Ledger, connection: Connection) -> None:
    """Events that were lost or forged: nothing that remembers the others is overwritten with what is left."""
    tamper(
        connection,
        "DELETE FROM ledger.events WHERE stream = 'lamp/b' AND version = 4",  # the head is ahead
        "INSERT INTO ledger.events (position, recorded_at, version, stream, topic, data) "
        "VALUES (900, now(), 9, 'lamp/a', 'lamp.broke', '{}')",  # forged: the head is behind, of a gap
    )
    kept = heads(connection)
    found, summary = run(used, repair=True)
    assert {(d.kind, d.about, d.evidence) for d in found} == {
        (Kind.HEAD_AHEAD, "lamp/b", True), (Kind.GAP, "lamp/a", True), (Kind.HEAD_BEHIND, "lamp/a", True),
    }  # fmt: skip
    assert (summary.repaired, heads(connection)) == (0, kept)
    rebuild_heads(used, Which("lamp/b"), processes=1)
    assert heads(connection) == kept, "also when all are made anew"
    also = [Kind.HEAD_AHEAD, Kind.HEAD_BEHIND]
    assert run(used, repair=True, also=also)[1].repaired == 2
    assert {d.kind for d in run(used)[0]} == {Kind.GAP}


def test_views_are_no_copy_of_forged_events(used: Ledger, connection: Connection) -> None:
    """A view is not rebuilt from events that are in doubt, unless that is asked for."""
    Projector(used, [KNOWN.views["in_state"]]).catch_up()
    forged = (
        "UPDATE ledger.events SET topic = 'lamp.broke', data = '{}' WHERE stream = 'lamp/a' AND version = 3"
    )
    tamper(connection, forged)
    shown = "SELECT stream, status FROM ledger_views.in_state ORDER BY 1"
    before = connection.execute(shown).fetchall()
    checks = [ViewCheck(KNOWN.views["in_state"])]
    found, _ = run(used, repair=True, checks=checks)
    assert {(d.kind, d.about, d.evidence) for d in found} == {
        (Kind.HEAD_DIFFERS, "lamp/a", True), (Kind.VIEW, "lamp/a", True),
    }  # fmt: skip
    assert connection.execute(shown).fetchall() == before
    run(used, repair=True, also=[Kind.VIEW], checks=checks)
    assert dict(connection.execute(shown).fetchall())["lamp/a"] == "broken"
