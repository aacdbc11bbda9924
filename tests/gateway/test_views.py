"""`pledger views`: how views are, following them, what is parked, metrics; with a view of the user's own."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from gateway.cli.errors import Code
from ledger import Ledger
from ledger.domain.known import KNOWN
from ledger.pipelines import PIPELINES
from projections.shipped import load
from tests.gateway.conftest import ROOT, Ended, eventually
from tests.lamp import LampBroke, LampMade, LampRead

Pledger = Callable[..., Ended]
Start = Callable[..., subprocess.Popen[str]]
Connection = psycopg.Connection[Any]
MODULE = "tests.gateway.viewed"


def known() -> list[str]:
    """The views of this package, and of the pipelines that tests declare."""
    items = [f"{name}_items" for name in PIPELINES]
    runs = ["build_runs", "build_stages", "flow_runs", "run_records", "task_runs"]
    return sorted(["activity", "in_state", "jobs", "progress", "work", *runs, *items])


@pytest.fixture(autouse=True)
def own_view() -> Iterator[None]:
    """What a test imports is not known to the next."""
    load()
    sys.modules.pop(MODULE, None)
    before = dict(KNOWN.views)
    yield
    KNOWN.views.clear()
    KNOWN.views.update(before)
    sys.modules.pop(MODULE, None)


def broken(log: Ledger, *reasons: str, stream: str = "lamp/a") -> None:
    log.append(stream, *[LampBroke(reason=reason) for reason in reasons])


def view_of(ended: Ended, name: str = "failures") -> dict[str, Any]:
    (found,) = [one for one in ended.objects if one["view"] == name]
    return found


@pytest.fixture
def views(pledger: Pledger) -> Pledger:
    """`pledger views …` with a view of the user's own."""
    return lambda *arguments: pledger("views", *arguments, "--view", MODULE)


def test_a_view_of_ones_own_is_followed_and_shown(
    views: Pledger, log: Ledger, connection: Connection
) -> None:
    broken(log, "no power", "no glass")
    assert view_of(views("--json", "--over", "0"))["state"] == "not made"
    ended = views("follow", "failures", "--once", "--json")
    assert (ended.code, ended.err) == (0, "")
    assert view_of(ended) == {"view": "failures", "position": 2, "events": 2, "stopped": None}
    assert connection.execute("SELECT * FROM ledger_views.failed_often(2)").fetchall() == [("lamp/a",)]
    words = connection.execute("SELECT word, many FROM ledger_views.failure_words ORDER BY 1").fetchall()
    assert words == [("glass", 1), ("no", 2), ("power", 1)]
    told = view_of(views("--json", "--over", "0.01"))
    assert (told["copy"], told["position"], told["lag_events"], told["parked"]) == (1, 2, 0, 0)
    assert (told["state"], told["rate"], told["error"], told["building"]) == ("live", 0.0, None, [])
    broken(log, "dust")
    row = next(row for row in views("--over", "0").rows if row[0] == "failures")
    assert (row[:4], row[5:]) == (["failures", "1", "2", "1"], ["", "0", "stopped"])


def test_all_that_are_known_are_shown(
    pledger: Pledger, views: Pledger, log: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [row[0] for row in pledger("views", "--over", "0").rows] == known()
    monkeypatch.setenv("LEDGER_VIEWS", f" {MODULE},")
    names = sorted([*known(), "failures"])
    assert [row[0] for row in pledger("views", "--over", "0").rows] == names
    assert [row[0] for row in pledger("views", "follow", "--once").rows] == names
    monkeypatch.delenv("LEDGER_VIEWS")
    KNOWN.views.pop("failures")
    assert {row[0]: row[-1] for row in pledger("views", "--over", "0").rows}["failures"] == "live"
    ended = pledger("views", "--view", "no.such")
    assert (ended.code, ended.out) == (2, "")
    assert "the view 'no.such' cannot be imported" in ended.err


def test_a_module_of_ones_own_folder(
    process: Callable[..., Ended], log: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text((ROOT / "tests/gateway/viewed.py").read_text(), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    ended = process("views", "--over", "0", LEDGER_VIEWS="mine", PYTHONPATH=f"{ROOT}:.")
    assert (ended.code, "failures" in ended.out) == (0, True)


def test_what_is_parked_is_shown_and_tried_again(views: Pledger, log: Ledger, connection: Connection) -> None:
    assert views("parked", "failures").err == "nothing is parked\n"
    broken(log, "dust", "", "glass")
    broken(log, "", stream="lamp/b")
    broken(log, "dust", stream="lamp/c")
    assert views("follow", "failures", "--once").code == 0
    ended = views("parked", "failures", "--json")
    assert [(one["stream"], one["position"], one["tries"]) for one in ended.objects] == [
        ("lamp/a", 2, 1),
        ("lamp/b", 4, 1),
    ]
    assert ended.objects[0]["error"] == "ValueError: a failure has a reason"
    assert ended.objects[0]["event"]["data"] == {"reason": ""}
    assert [row[:4] for row in views("parked").rows] == [
        ["failures", "lamp/a", "2", "1"],
        ["failures", "lamp/b", "4", "1"],
    ]
    assert view_of(views("--json", "--over", "0"))["parked"] == 2
    ended = views("retry", "failures", "lamp/b")
    assert (ended.code, ended.rows) == (
        Code.REFUSED,
        [["lamp/b", "parked", "4", "ValueError: a failure has a reason"]],
    )
    view = KNOWN.views["failures"]
    apply = type(view).apply
    try:
        type(view).apply = lambda self, batch: []  # type: ignore[method-assign, assignment]
        ended = views("retry", "failures", "--all", "--json")
    finally:
        type(view).apply = apply  # type: ignore[method-assign]
    assert ended.code == 0
    assert [(one["stream"], one["followed"], one["error"]) for one in ended.objects] == [
        ("lamp/a", True, None),
        ("lamp/b", True, None),
    ]
    ended = views("parked", "failures")
    assert (ended.code, ended.out, ended.err) == (0, "", "nothing is parked\n")


def test_names_that_are_wrong_are_answered_with_near_ones(views: Pledger, log: Ledger) -> None:
    broken(log, "", stream="lamp/one")
    views("follow", "failures", "--once")
    for arguments, code, says in [
        (["follow", "failurs"], 2, "did you mean failures?"),
        (["parked", "failurs"], 2, "did you mean failures?"),
        (["retry", "failurs", "--all"], 2, "did you mean failures?"),
        (["retry", "failures", "lamp/two"], 3, "stream lamp/two is not parked in view failures"),
        (["retry", "failures", "lamp/ones"], 3, "did you mean lamp/one?"),
        (["retry", "failures"], 2, "give the stream to follow again, or --all"),
        (["retry", "failures", "lamp/one", "--all"], 2, "give the stream"),
    ]:
        ended = views(*arguments)
        assert (ended.code, ended.out) == (code, ""), arguments
        assert says in ended.err
        assert ended.err.count("\n") == 1


def test_one_that_cannot_be_followed_ends_with_1_and_the_others_are_done(
    views: Pledger, log: Ledger, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    broken(log, "dust")
    views("follow", "failures", "--once")
    connection.execute("UPDATE ledger.view_copies SET definition = 'other'")
    broken(log, "dust")
    ended = views("follow", "failures", "in_state", "--once", "--json")
    assert (ended.code, ended.error["error"]) == (Code.REFUSED, "DefinitionChanged")
    assert (
        "other definition" in view_of(ended)["stopped"] or "another definition" in view_of(ended)["stopped"]
    )
    assert view_of(ended, "in_state")["position"] == 2
    assert views("follow", "failures").code == Code.REFUSED
    assert view_of(views("--json", "--over", "0"))["state"] == "other definition"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_it_follows_until_a_signal_and_serves_metrics(
    started: Start, log: Ledger, connection: Connection, number: signal.Signals, code: int
) -> None:
    follow = started("views", "follow", "failures", "--view", MODULE, "--metrics-port", "0", "--json")
    assert follow.stderr is not None
    said = follow.stderr.readline()
    assert said.startswith("metrics are at http://127.0.0.1:")
    assert follow.stderr.readline() == "following failures; Ctrl-C ends it\n"
    broken(log, "dust")
    eventually(
        lambda: connection.execute("SELECT to_regclass('ledger_views.failures')").fetchone() != (None,)
    )
    eventually(lambda: connection.execute("SELECT count(*) FROM ledger_views.failures").fetchone() == (1,))
    with urllib.request.urlopen(said.split()[-1], timeout=60) as answer:
        assert 'pledger_view_followers{schema="ledger",view="failures"} 1.0' in answer.read().decode()
    follow.send_signal(number)
    out, said = follow.communicate(timeout=60)
    assert (follow.returncode, said) == (code, "")
    assert '"view": "failures", "position": 1, "events": 1, "stopped": null' in out


def test_a_port_that_is_taken(views: Pledger, log: Ledger) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = views("follow", "failures", "--metrics-port", str(port))
    assert ended.code == 2
    assert f"port {port} cannot be used: " in ended.err


def test_metrics_are_printed(views: Pledger, log: Ledger) -> None:
    log.append("lamp/a", LampMade(), LampRead())
    views("follow", "failures", "--once")
    ended = views("metrics")
    assert (ended.code, ended.err) == (0, "")
    assert 'pledger_view_position{schema="ledger",view="failures"} 2.0\n' in ended.out
    assert "# TYPE pledger_view_events_total counter\n" in ended.out
