"""`pledger log` and `tail`: in order, filtered, followed, and ended from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from time import monotonic

import pytest

from gateway.cli.errors import Code
from ledger import Cursor, Ledger
from tests.gateway.conftest import Ended, eventually
from tests.lamp import LampRead, LampSwitchedOn

Pledger = Callable[..., Ended]
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def ten(log: Ledger) -> list[int]:
    """Ten events in two streams: their positions."""
    return [log.append(f"lamp/{n % 2}", LampRead(value=n)).last_position for n in range(10)]


def positions(ended: Ended) -> list[int]:
    assert ended.code == 0, ended.err
    return [found["position"] for found in ended.objects]


def test_log_shows_the_log_in_order(pledger: Pledger, ten: list[int]) -> None:
    assert positions(pledger("log", "--json")) == ten
    rows = pledger("log").rows
    assert [int(row[0]) for row in rows] == ten
    assert rows[3][2:] == ["lamp/1", "2", "lamp.read", "tester", '{"value": 3}']


def test_log_after_a_position_and_to_a_limit(pledger: Pledger, ten: list[int]) -> None:
    assert positions(pledger("log", "--json", "--after", str(ten[4]))) == ten[5:]
    assert positions(pledger("log", "--json", "--after", str(ten[4]), "--limit", "2")) == ten[5:7]
    assert positions(pledger("log", "--json", "--after", "end")) == []


def test_log_after_a_cursor(pledger: Pledger, log: Ledger, ten: list[int]) -> None:
    event = log.event_at(ten[4])
    assert event is not None
    cursor = Cursor.after(log.identity.ledger, event)
    assert positions(pledger("log", "--json", "--after", str(cursor))) == ten[5:]
    other = Cursor(cursor.ledger, cursor.position, "0" * 16)
    refused = pledger("log", "--json", "--after", str(other))
    assert (refused.code, refused.out, refused.error["error"]) == (1, "", "CursorMismatch")


def test_log_of_topics_and_streams(pledger: Pledger, log: Ledger, ten: list[int]) -> None:
    switched = log.append("lamp/1", LampSwitchedOn()).last_position
    assert positions(pledger("log", "--json", "--topic", "lamp.switched_on")) == [switched]
    both = pledger("log", "--json", "--topic", "lamp.switched_on", "--topic", "lamp.read")
    assert positions(both) == [*ten, switched]
    assert positions(pledger("log", "--json", "--stream", "lamp/0")) == ten[::2]
    assert positions(pledger("log", "--json", "--stream", "lamp/1", "--limit", "2")) == ten[1:4:2]


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_log_follows_as_events_come(started: Start, log: Ledger, ten: list[int]) -> None:
    log_ = started("log", "-f", "--json", "--after", str(ten[-1]))
    seconds = []
    for number in range(5):
        eventually(lambda: log_.poll() is None)
        begun = monotonic()
        position = log.append("lamp/0", LampRead(value=number)).last_position
        assert json.loads(first_line(log_))["position"] == position
        seconds.append(monotonic() - begun)
    assert min(seconds[1:]) < 0.5  # the first one waits for the process to start
    log_.send_signal(signal.SIGINT)
    _, said = log_.communicate(timeout=60)
    assert (log_.returncode, said) == (Code.INTERRUPTED, "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_log_that_waits_is_ended_by_a_signal(
    started: Start, ten: list[int], number: signal.Signals, code: int
) -> None:
    log_ = started("log", "-f")
    assert [first_line(log_) for _ in ten][-1].startswith(f"{ten[-1]}\t")
    log_.send_signal(number)
    out, said = log_.communicate(timeout=60)
    assert (log_.returncode, out, said) == (code, "", "")


def test_log_that_waits_sees_its_reader_go(dsn: str, started: Start, ten: list[int]) -> None:
    read, write = os.pipe()
    log_ = started("log", "-f", stdout=write)
    os.close(write)
    with os.fdopen(read) as lines:
        assert lines.readline().startswith(f"{ten[0]}\t")
    _, said = log_.communicate(timeout=60)  # nothing is appended any more
    assert (log_.returncode, said) == (Code.READER_GONE, "")


def test_log_follows_to_its_limit(started: Start, log: Ledger, ten: list[int]) -> None:
    log_ = started("log", "-f", "--limit", "12", "--json")
    appending = threading.Thread(target=lambda: log.append("lamp/0", LampRead(), LampRead(), LampRead()))
    appending.start()
    out, said = log_.communicate(timeout=60)
    appending.join()
    assert (log_.returncode, said, len(out.splitlines())) == (0, "", 12)


def test_tail_shows_the_last_events(pledger: Pledger, log: Ledger, ten: list[int]) -> None:
    more = [log.append("lamp/2", LampRead(value=n)).last_position for n in range(3)]
    assert positions(pledger("tail", "--json")) == [*ten[-7:], *more]
    assert positions(pledger("tail", "--json", "-n", "2")) == more[-2:]
    assert positions(pledger("tail", "--json", "--lines", "100")) == [*ten, *more]
    assert positions(pledger("tail", "--json", "-n", "0")) == []
    assert pledger("tail", "-n", "1").rows[0][2:] == ["lamp/2", "3", "lamp.read", "tester", '{"value": 2}']


def test_tail_of_topics_and_streams_looks_back_as_far_as_it_must(
    pledger: Pledger, log: Ledger, ten: list[int]
) -> None:
    switched = log.append("lamp/1", LampSwitchedOn()).last_position
    log.append("lamp/2", *[LampRead()] * 50)
    assert positions(pledger("tail", "--json", "--topic", "lamp.switched_on")) == [switched]
    assert positions(pledger("tail", "--json", "--stream", "lamp/1", "-n", "2")) == [ten[-1], switched]


def test_tail_goes_on_where_its_last_events_end(started: Start, log: Ledger, ten: list[int]) -> None:
    tail = started("tail", "-f", "-n", "3", "--json")
    assert [json.loads(first_line(tail))["position"] for _ in range(3)] == ten[-3:]
    position = log.append("lamp/0", LampRead()).last_position
    assert json.loads(first_line(tail))["position"] == position
    tail.send_signal(signal.SIGINT)
    _, said = tail.communicate(timeout=60)
    assert (tail.returncode, said) == (Code.INTERRUPTED, "")
