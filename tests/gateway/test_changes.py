"""`pledger changes`: what changed in a view, filtered, from a place on, and as it comes."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable

from gateway.cli.errors import Code
from ledger import Cursor, Ledger
from ledger.pipelines import LSMStateService
from projections.engine.projector import Projector
from projections.feeds import ProgressChanges
from projections.views.in_state import InState
from projections.views.progress import Progress
from tests.gateway.conftest import Ended

Pledger = Callable[..., Ended]
VIEWS = [InState(), Progress()]


def work(log: Ledger, *strips: int) -> None:
    """Strips of one channel are completed, and the views show it."""
    for strip in strips:
        with LSMStateService(log).open_strip("brain", slice_id=1, channel_id=1, strip_id=strip) as item:
            item.mark_completed()
    Projector(log, VIEWS).catch_up()


def test_changes_of_states(pledger: Pledger, log: Ledger) -> None:
    work(log, 1, 2)
    rows = pledger("changes", "in_state", "--category", "lsm.strip").rows
    assert [row[2:] for row in rows] == [
        [f"lsm.strip/brain/1/1/{n}", version, topic, before, status]
        for n in (1, 2)
        for version, topic, before, status in (
            ("1", "lsm.strip.created", "", "pending"), ("2", "lsm.strip.completed", "pending", "completed"),
        )
    ]  # fmt: skip
    found = pledger("changes", "in_state", "--status", "completed", "--json").objects
    assert [change["stream"][-1] for change in found] == ["1", "2"]
    assert found[0]["before"] == "pending"
    one = pledger(
        "changes", "in_state", "--status", "completed", "--after", str(found[0]["position"]), "--json"
    )
    assert one.objects == found[1:]
    assert len(pledger("changes", "in_state", "--limit", "3").rows) == 3
    assert pledger("changes", "in_state", "--after", "end").rows == []


def test_changes_of_progress(pledger: Pledger, log: Ledger) -> None:
    work(log, 1, 2)
    (found,) = pledger("changes", "progress", "--category", "lsm.strip", "--json").objects
    assert (found["parent"], found["present"], found["done"], found["total"]) == (
        "lsm.channel/brain/1/1",
        2,
        2,
        None,
    )
    (row,) = pledger("changes", "progress", "--category", "lsm.strip").rows
    assert row[2:] == ["lsm.strip", "lsm.channel/brain/1/1", "2", "0", "2", "0", "", ""]
    feed = ProgressChanges(log)
    feed.poll()
    assert pledger("changes", "progress", "--after", str(feed.cursor)).rows == []


def test_wrong_use_is_told(pledger: Pledger, log: Ledger) -> None:
    assert pledger("changes", "progress", "--status", "failed").code == Code.MISUSE
    assert pledger("changes", "nothing").code == Code.MISUSE
    assert pledger("changes", "in_state", "--after", "soon").code == Code.MISUSE
    other = Cursor(log.identity.ledger, 10**6, "0" * 16)
    assert pledger("changes", "in_state", "--after", str(other)).code == Code.REFUSED
    none = pledger("changes", "in_state")
    assert (none.code, none.out) == (Code.FINE, "")
    assert "the view in_state does not exist yet" in none.err


def test_changes_are_followed(started: Callable[..., subprocess.Popen[str]], log: Ledger) -> None:
    work(log, 1)
    process = started("changes", "in_state", "-f", "--json", "--status", "completed")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["stream"] == "lsm.strip/brain/1/1/1"
    work(log, 2)
    assert json.loads(process.stdout.readline())["stream"] == "lsm.strip/brain/1/1/2"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (Code.INTERRUPTED, "")
