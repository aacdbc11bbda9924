"""`pledger queues`, `operations` and `schedules`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gateway.cli.errors import Code
from ledger import Ledger
from tests.gateway.conftest import Ended

Pledger = Callable[..., Ended]


# Queues, operations, schedules


def test_pausing_and_limits(pledger: Pledger, log: Ledger) -> None:
    assert pledger("queues", "pause", "quick", "--reason", "mending").rows == [["quick", "paused"]]
    again = pledger("queues", "pause", "quick", "--json")
    assert (again.code, again.objects[0]["changed"], again.err) == (
        0,
        False,
        "it is paused already: nothing changed\n",
    )
    assert pledger("queues", "resume", "quick", "--json").objects[0]["changed"] is True
    assert (
        pledger("operations", "limit", "embed", "--concurrency", "1", "--rate", "10", "--per", "1m").code == 0
    )
    assert pledger("operations", "list").rows == [["embed", "1", "10 in 60 s"]]
    assert pledger("operations", "limit", "embed", "--none").code == 0
    (none,) = pledger("operations", "list", "--json").objects
    assert (none["concurrency"], none["rate"]) == (None, None)
    for wrong in (["--none", "--rate", "1"], [], ["--concurrency", "0"], ["--rate", "1", "--per", "0"]):
        assert pledger("operations", "limit", "embed", *wrong).code == Code.MISUSE, wrong


def test_schedules(pledger: Pledger, log: Ledger) -> None:
    words: list[Any] = ["nightly", "30 2 * * *", "clean", "days=30", "--timezone", "Europe/Berlin"]
    words += ["--no-overlap", "--tag", "night", "--max-attempts", "3"]
    (made,) = pledger("schedules", "set", *words, "--json").objects
    assert (made["status"], made["changed"]) == ("active", True)
    assert pledger("schedules", "set", *words, "--json").objects[0]["changed"] is False
    times = [one["at"] for one in pledger("schedules", "next", "nightly", "--count", "3", "--json").objects]
    assert times == sorted(times)
    assert (len(times), times[0], times[0][13:16]) == (3, made["next"], ":30")
    (shown,) = pledger("schedules", "show", "nightly", "--json").objects
    assert (shown["payload"], shown["overlap"], shown["fields"]["max_attempts"]) == ({"days": 30}, False, 3)
    assert dict(pledger("schedules", "show", "nightly").rows)["cron"] == "30 2 * * *"
    assert pledger("schedules", "pause", "nightly").rows[0][1:] == ["paused", ""]
    assert pledger("schedules", "next", "nightly").err == "the schedule is paused: it has no next time\n"
    assert pledger("schedules", "resume", "nightly", "--json").objects[0]["changed"] is True
    assert pledger("schedules", "list").rows[0][:4] == [
        "nightly",
        "active",
        "30 2 * * * Europe/Berlin",
        "clean",
    ]
    assert pledger("schedules", "remove", "nightly").code == 0
    assert pledger("schedules", "list").rows == []
    assert pledger("schedules", "list", "--removed").rows[0][1] == "removed"
    assert pledger("schedules", "show", "weekly").code == Code.NOT_FOUND
    assert pledger("schedules", "set", "x", "whenever", "clean").code == Code.MISUSE
    assert (
        pledger("schedules", "set", "x", "* * * * *", "clean", "--timezone", "Mars/Base").code == Code.MISUSE
    )
    assert pledger("schedules", "set", "x", "* * * * *", "clean", "--catch-up", "some").code == Code.MISUSE
