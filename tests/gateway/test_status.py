"""`pledger status`: what is well in few words, what is not by name."""

from __future__ import annotations

from collections.abc import Callable

from ledger import Cursor, Ledger
from ledger.domain.known import KNOWN
from ledger.jobs import Jobs
from ledger.jobs.leases import Leases
from ledger.log.readers import Positions
from projections.engine.projector import Projector
from tests.gateway.conftest import Ended
from tests.lamp import LampRead

Pledger = Callable[..., Ended]


def test_an_empty_ledger(pledger: Pledger, log: Ledger) -> None:
    found = pledger("status", "--json")
    assert found.code == 0, found.err
    (seen,) = found.objects
    assert set(seen) == {"ledger", "configuration", "views", "readers", "workers", "jobs", "failures"}
    assert (seen["ledger"]["id"], seen["ledger"]["position"]) == (str(log.identity.ledger), 0)
    assert (seen["ledger"]["last_event_at"], seen["jobs"], seen["readers"]) == (None, None, [])
    assert not any(seen["failures"].values())
    assert ["last event none yet" in row[1] for row in pledger("status").rows if row[0] == "log"] == [True]


def test_what_lags_and_what_works(pledger: Pledger, log: Ledger) -> None:
    for _ in range(3):
        Jobs(log).submit("count", {"n": 1})
    from projections.shipped import load

    load()
    Projector(log, [KNOWN.views["jobs"], KNOWN.views["work"]]).catch_up()
    position = log.append("lamp/a", LampRead()).last_position
    Positions(log).keep("reactor a", Cursor(log.identity.ledger))
    figures = {"host": "h", "pid": 1, "queues": None, "operations": ["count"], "slots": 4, "busy": 1}
    Leases(log).register("w1", **figures, draining=False, done=2)
    seen = pledger("status", "--json").objects[0]
    assert seen["jobs"] == {"queued": 3}
    assert seen["readers"] == [{"reader": "reactor a", "position": 0, "lag": position, "parked": 0}]
    assert seen["workers"] == {"here": 1, "silent": 0, "draining": 0, "slots": 4, "busy": 1}
    (jobs,) = (view for view in seen["views"] if view["view"] == "jobs")
    assert (jobs["state"], jobs["lag_events"]) == ("stopped", 1)
    shown = pledger("status").out
    assert "jobs: stopped, 1 events behind" in shown
    assert f"reactor a is {position} positions behind" in shown
    assert "1 here, 1 of 4 slots busy, 0 draining" in shown
    assert "3 queued" in shown
