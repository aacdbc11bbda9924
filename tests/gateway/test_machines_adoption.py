"""`pledger machines adopt` and `timeouts`."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from ledger import Ledger
from ledger.domain.known import KNOWN
from projections.engine.attach import attach
from projections.views.in_state import InState
from tests.gateway.conftest import Ended, eventually
from tests.gateway.timed import Loan

Pledger = Callable[..., Ended]
Connection = psycopg.Connection[Any]
ADOPT = ("machines", "adopt", "timed_loan", "--table", "moves", "--parent", "book")


@pytest.fixture(autouse=True)
def only_loans(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machines of other tests of this process are not there."""
    for name in [*KNOWN.machines]:
        monkeypatch.delitem(KNOWN.machines, name)
    monkeypatch.setitem(KNOWN.machines, Loan.name, Loan)


@pytest.fixture
def moves(connection: Connection) -> Connection:
    """A table of another system: two books, one of which came back once."""
    connection.execute(
        "CREATE TABLE moves (id serial, book text, to_state text, sort_key integer, most_recent boolean, "
        "created_at timestamptz, reader text)"
    )
    connection.execute(
        "INSERT INTO moves (book, to_state, sort_key, most_recent, created_at, reader) VALUES "
        "('b', 'lent', 10, true, '2020-01-02 UTC', 'mina'), "
        "('a', 'overdue', 20, true, '2020-01-02 UTC', NULL), "
        "('a', 'lent', 10, false, '2020-01-01 UTC', 'theo')"
    )
    return connection


def test_a_table_is_adopted_once(pledger: Pledger, log: Ledger, moves: Connection) -> None:
    told = json.loads(pledger(*ADOPT, "--dry-run", "--json").out)
    assert (told["dry_run"], told["new"], told["recorded"]) == (True, 2, 3)
    assert log.streams() == []
    ended = pledger(*ADOPT, "--machines", "tests.gateway.timed", "--batch", "1")
    assert (ended.code, ended.err) == (0, "3 moves of 2 objects recorded\n")
    assert dict(ended.rows)["recorded"] == "3"
    assert [(move.from_state, move.to_state) for move in Loan(log, "a").history()] == [
        ("shelf", "lent"), ("lent", "overdue"),
    ]  # fmt: skip
    assert Loan(log, "b").history()[0].metadata == {"reader": "mina"}
    told = json.loads(pledger(*ADOPT, "--json").out)
    assert told == {
        "machine": "timed_loan", "table": "moves", "dry_run": False, "rows": 3, "skipped": 0, "parents": 2,
        "new": 0, "continued": 0, "left": 2, "differ": 0, "recorded": 0, "there": 3, "differing": [],
    }  # fmt: skip


def test_an_object_that_differs_is_reported(pledger: Pledger, log: Ledger, moves: Connection) -> None:
    Loan(log, "b").move("lent")
    ended = pledger(*ADOPT, "--json")
    assert ended.code == 1
    (one,) = json.loads(ended.out)["differing"]
    assert one["stream"] == "timed_loan/b"
    assert f"timed_loan/b was not changed: {one['reason']}\n" in ended.err
    assert Loan(log, "a").current_state() == "overdue"


def test_a_table_that_contradicts_itself_is_refused(pledger: Pledger, moves: Connection) -> None:
    moves.execute("UPDATE moves SET most_recent = true")
    ended = pledger(*ADOPT, "--json")
    assert (ended.code, ended.out, ended.error["error"]) == (1, "", "BadTable")
    assert ended.error["parts"]["many"] == 2
    assert "book a, sort_key 10: it is one of 2 rows that are most_recent" in ended.error["message"]
    assert json.loads(pledger(*ADOPT, "--json", "--force").out)["recorded"] == 3
    moves.execute("UPDATE moves SET to_state = 'eaten', most_recent = true WHERE book = 'b'")
    ended = pledger(*ADOPT, "--machines", "tests.gateway.timed")
    assert (ended.code, "book b, sort_key 10: eaten is no state of the machine" in ended.err) == (1, True)


def test_columns_of_other_names(pledger: Pledger, log: Ledger, moves: Connection, dsn: str) -> None:
    moves.execute("ALTER TABLE moves RENAME to_state TO state")
    moves.execute("ALTER TABLE moves RENAME sort_key TO place")
    columns = ("--columns", "to_state=state,sort_key=place,created_at=", "--columns", "most_recent=")
    ended = pledger(*ADOPT, *columns, "--source-dsn", dsn, "--parent", "reader", "--force")
    assert (ended.code, dict(ended.rows)["skipped"]) == (0, "1")
    move = Loan(log, ("b", "mina")).history()[0]
    assert (move.claimed_at, set(move.metadata)) == (None, {"created_at", "most_recent"})


def test_what_cannot_be_meant_is_said_so(pledger: Pledger, moves: Connection) -> None:
    for arguments, says in [
        (["--table", "nowhere"], "this database has no table 'nowhere'"),
        (["--parent", "boook"], "moves has no column 'boook' (did you mean book?)"),
        (["--columns", "to_state"], "--columns 'to_state' must be ROLE=COLUMN, such as to_state=state"),
        (["--columns", "state=to_state"], "'state' is not the role of a column"),
        (["--time-zone", "Mars"], "there is no time zone 'Mars'"),
        (["--machines", "no.such"], "the module of machines 'no.such' cannot be imported"),
    ]:
        ended = pledger(*ADOPT, *arguments)
        assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1), arguments
        assert says in ended.err
    unknown = pledger(
        "machines", "adopt", "loann", "--table", "moves", "--parent", "book", "--machines", "json"
    )
    assert (unknown.code, "no machine is named 'loann'" in unknown.err) == (2, True)


# What is known after an adoption


def test_what_was_adopted_is_shown_before_it_is_defined(
    pledger: Pledger, log: Ledger, moves: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(KNOWN.machines, Loan.name)  # as in a process that imports nothing
    assert pledger(*ADOPT).code == 0
    assert [row[:5] for row in pledger("machines", "list").rows] == [["timed_loan", "0", "0", "2", "3"]]
    shown = pledger("machines", "show", "timed_loan")
    assert [row[:4] for row in shown.rows] == [["lent", "", "1", "overdue"], ["overdue", "terminal", "1", ""]]
    assert "no definition of timed_loan is recorded: this one is derived from its moves" in shown.err
    (told,) = pledger("machines", "show", "timed_loan", "--json").objects
    assert (told["definition"], told["defined_at"], told["objects"]) == (0, None, 2)
    assert "timed_loan, as moved, 2 objects" in pledger("machines", "diagram", "timed_loan").out
    checked = pledger("machines", "check", "timed_loan", "--json")
    assert (
        checked.code,
        "has moves but no definition to check them against" in checked.error["message"],
    ) == (
        2,
        True,
    )
    every = pledger("machines", "check", "--all")
    assert (every.code, "timed_loan was adopted and has no definition" in every.err) == (0, True)
    monkeypatch.setitem(KNOWN.machines, Loan.name, Loan)
    by_class = pledger("machines", "check", "timed_loan", "--machines", "tests.gateway.timed")
    assert (by_class.code, by_class.err) == (
        0,
        "timed_loan, as its module declares it: every move is allowed\n",
    )


def test_a_live_move_after_an_adoption_leaves_the_first_moves_allowed(
    pledger: Pledger, log: Ledger, moves: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(KNOWN.machines, Loan.name)
    assert pledger(*ADOPT).code == 0
    Loan(log, "c").move("lent")
    ended = pledger("machines", "check", "timed_loan")
    assert (ended.code, ended.out, ended.err) == (0, "", "timed_loan, definition 1: every move is allowed\n")


def test_an_adoption_with_the_machine_records_its_definition(
    pledger: Pledger, log: Ledger, moves: Connection
) -> None:
    modules = ("--machines", "tests.gateway.timed")
    assert pledger(*ADOPT, *modules, "--dry-run").code == 0
    assert log.streams("machine/") == []
    assert pledger(*ADOPT, *modules).code == 0
    assert pledger("machines", "list").rows[0][:2] == ["timed_loan", "1"]
    assert pledger("machines", "check", "timed_loan").code == 0
    assert [move.definition for move in Loan(log, "a").history()] == [0, 0]


# Timeouts


def test_once_moves_what_is_due(pledger: Pledger, log: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    attach(log, InState())
    for book in ("a", "b"):
        Loan(log, book).move("lent")
    monkeypatch.setenv("LEDGER_MACHINES", "tests.gateway.timed, ")
    time.sleep(0.002)  # it is due after one millisecond
    ended = pledger("machines", "timeouts", "--once", "--json")
    told = json.loads(ended.out)
    assert (ended.code, ended.err) == (0, "2 moved, 0 refused\n")
    assert told.pop("machines") == ["timed_loan"]
    assert told == {"due": 2, "moved": 2, "refused": 0, "waiting": 0, "gone": 0, "failed": 0}
    assert Loan(log, "a").current_state() == "overdue"
    assert dict(pledger("machines", "timeouts", "--once").rows)["due"] == "0"
    Loan(log, "nowhere").move("lent")
    time.sleep(0.002)
    ended = pledger("machines", "timeouts", "--once")
    assert (ended.code, dict(ended.rows)["failed"]) == (1, "1")
    assert ended.err == "timed_loan/nowhere cannot be moved to overdue: LookupError: no address\n"


def test_it_runs_until_a_signal(started: Callable[..., subprocess.Popen[str]], log: Ledger) -> None:
    """Given a process that runs; then what is lent meanwhile is overdue, once; and a signal ends it."""
    attach(log, InState())
    runner = started("machines", "timeouts", "--machines", "tests.gateway.timed", "--json")
    for book in ("a", "b"):
        Loan(log, book).move("lent")
        eventually(lambda: Loan(log, book).current_state() == "overdue")  # noqa: B023
    assert len(log.read("timed_loan/b")) == 2
    assert runner.stderr is not None
    assert runner.stderr.readline() == "timeouts of timed_loan; Ctrl-C ends it\n"
    assert [runner.stderr.readline() for _ in "ab"] == ["1 moved, 0 refused\n"] * 2
    runner.send_signal(signal.SIGINT)
    out, _ = runner.communicate(timeout=60)
    assert (runner.returncode, json.loads(out)["moved"]) == (130, 2)


def test_where_nothing_times_out_it_says_so(
    pledger: Pledger, log: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = pledger("machines", "timeouts", "--once")
    assert (ended.code, "the view in_state does not exist yet" in ended.err) == (4, True)
    monkeypatch.delitem(KNOWN.machines, Loan.name)
    ended = pledger("machines", "timeouts", "--once")
    assert (ended.code, ended.out) == (2, "")
    assert "no machine is imported" in ended.err
