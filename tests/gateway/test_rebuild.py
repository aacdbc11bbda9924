"""`pledger rebuild`: views, heads and commands from a shell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from gateway.cli.errors import Code
from ledger import Ledger
from ledger.pipelines import PIPELINES
from projections import Projector, views_named
from projections.verify import rebuild_heads
from tests.gateway.conftest import Ended
from tests.views.lamps import lamps, rows, states_by_hand
from tests.views.views_of_tests import Declare, declare  # noqa: F401  a fixture

Pledger = Callable[..., Ended]
Connection = psycopg.Connection[Any]


def known() -> list[str]:
    """The views of this package, and of the pipelines that tests declare."""
    items = [f"{name}_items" for name in PIPELINES]
    runs = ["build_runs", "build_stages", "flow_runs", "run_records", "task_runs"]
    return sorted(["activity", "in_state", "jobs", "progress", "work", *runs, *items])


def test_everything_is_rebuilt_and_told(pledger: Pledger, log: Ledger, connection: Connection) -> None:
    lamps(log, 5)
    ended = pledger("rebuild", "--all", "--json")
    assert ended.code == Code.FINE, ended.err
    heads, commands, *views = ended.objects
    assert (heads["view"], heads["streams"], heads["changed"]) == (
        "heads",
        5,
        {"repaired": 5},
    )  # had no states
    assert (commands["view"], commands["changed"]) == ("commands", {})
    assert [one["view"] for one in views] == known()
    assert all(one["switched"] and one["differences"] == [] for one in views)
    assert rows(connection) == states_by_hand(log)
    assert pledger("rebuild", "heads", "--json").objects[0]["changed"] == {}


def test_heads_that_were_dropped_come_back(
    pledger: Pledger, log: Ledger, connection: Connection, admin_dsn: str
) -> None:
    lamps(log, 3)
    rebuild_heads(log, processes=1)
    before = connection.execute("SELECT * FROM ledger.heads ORDER BY stream").fetchall()
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute("TRUNCATE ledger.heads")
    ended = pledger("rebuild", "heads", "--domain", "tests.lamp", "--jobs", "1")
    assert (ended.code, ended.out.split("\t")[0]) == (Code.FINE, "heads")
    assert "3 inserted" in ended.out
    after = connection.execute("SELECT * FROM ledger.heads ORDER BY stream").fetchall()
    assert after == before


def test_a_difference_that_is_not_allowed_refuses_the_switch(
    pledger: Pledger, log: Ledger, connection: Connection
) -> None:
    lamps(log, 3)
    Projector(log, views_named(["in_state"])).catch_up()
    connection.execute("SET ROLE ledger_projector")
    connection.execute("UPDATE ledger_views.in_state_1 SET status = 'broken' WHERE stream = 'lamp/1'")
    ended = pledger("rebuild", "in_state", "--allow", "0")
    assert ended.code == Code.REFUSED
    assert "1 rows differ between the rebuilt copy and the live one, more than the 0 allowed" in ended.err
    shown = pledger("rebuild", "in_state", "--dry-run", "--json").objects[0]
    assert (shown["switched"], shown["differences"][0]["only_old"]) == (False, 1)
    assert pledger("rebuild", "in_state", "--stream", "lamp/").code == Code.FINE
    assert rows(connection) == states_by_hand(log)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give the views to rebuild, or --all"),
        (("in_state", "--all"), "give the views to rebuild, or --all"),
        (("in_sate",), "did you mean in_state?"),
        (("in_state", "--stream", "a/", "--dry-run"), "they take no other option"),
        (("heads", "--roll-back"), "they take no option of a view's rebuild"),
        (("activity", "--stream", "a/"), "cannot be rebuilt in part: run `pledger rebuild activity`"),
        (("in_state", "--roll-back"), "has no earlier copy"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(
    pledger: Pledger, log: Ledger, arguments: tuple[str, ...], said: str
) -> None:
    ended = pledger("rebuild", *arguments)
    assert ended.code == Code.MISUSE
    assert said in ended.err


def test_a_slip_in_a_topic_is_told(pledger: Pledger, log: Ledger, declare: Declare) -> None:  # noqa: F811
    lamps(log, 2)
    declare(topics=("lamp.mode",))
    for command in (("rebuild", "watts"), ("views", "follow", "watts", "--once")):
        ended = pledger(*command)
        assert ended.code == Code.FINE
        assert "warning: view watts wants 'lamp.mode' (did you mean 'lamp.made'?)" in ended.err
    assert pledger("rebuild", "watts", "--json").objects[0]["unknown_topics"] == ["lamp.mode"]
    assert "warning" not in pledger("rebuild", *known()).err
