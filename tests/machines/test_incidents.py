"""A real log of incidents through a machine found in it: all that is said of it equals a direct reading.

LEDGER_TEST_BPIC names a gzipped XES file such as that of the BPI Challenge 2013 (see tests/audit); a small
log of the same shape, made by hand, is always there.
"""

from __future__ import annotations

import gzip
import os
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import groupby, pairwise
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pytest

from ledger import Ledger
from ledger.domain.names import split_name
from ledger.exchange import Source, Xes
from ledger.machines import Definition, Machine, PastMove, Replayed, discover, replay
from projections.audit import Axis, Question, counts, dwell
from tests.audit.test_incidents import Read, read

FILE = os.environ.get("LEDGER_TEST_BPIC")
BEGIN = "Reported"
WORDS = {
    "P": ("Accepted", "In Progress"),
    "Q": ("Queued", "Awaiting Assignment"),
    "W": ("Accepted", "Wait - User"),
    "R": ("Completed", "Resolved"),
    "C": ("Completed", "Closed"),
    "X": ("Completed", "Cancelled"),
}
SMALL = ["PRC", "PQPRC", "PQPWRC", "QPWRC", "QPRC", "PWWRC", "PX", "QRC", "PRPRC", "P", "CPR"]
"""Of each incident its states; WW, PX, QR, RP, CP and a beginning in C are each of one incident only."""


def xes(incidents: list[str]) -> Iterator[str]:
    """A log of incidents, an event every seven hours, as process mining writes it."""
    yield '<log xes.version="1.0" xmlns="http://www.xes-standard.org/">'
    at = datetime.fromisoformat("2012-04-03T09:00:00+02:00")
    for nth, states in enumerate(incidents):
        yield f'<trace><string key="concept:name" value="1-{nth}"/>'
        for state in states:
            at += timedelta(hours=7)
            name, lifecycle = map(quoteattr, WORDS[state])
            yield f'<event><string key="concept:name" value={name}/><string key="org:resource" value="Ana"/>'
            yield f'<string key="lifecycle:transition" value={lifecycle}/>'
            yield f'<date key="time:timestamp" value="{at.isoformat()}"/></event>'
        yield "</trace>"
    yield "</log>"


def histories(path: Path) -> Iterator[tuple[str, list[PastMove]]]:
    """The incidents of a file, one after the other; the file is never in memory."""
    form = Xes("log", "incidents", states=("concept:name", "lifecycle:transition"))
    with Source.of(path) as source:
        events = (one for one in form.arrivals(source) if one.status is not None)
        for (_, stream), group in groupby(events, key=lambda one: (one.trace, one.stream)):
            moves = [
                PastMove(
                    str(one.status),
                    datetime.fromisoformat(one.fields["claimed_at"]),
                    actor=one.fields.get("actor"),
                )
                for one in group
            ]
            yield split_name(stream)[1][-1], moves


class Walked:
    """The same incidents, walked by a table made of the file's own lines: no code of the ledger."""

    def __init__(self, traces: Read, at_least: int) -> None:
        walks = {name: [BEGIN, *(state for _, state in events)] for name, events in traces.items()}
        counted = Counter(pair for walk in walks.values() for pair in set(pairwise(walk)))
        self.edges = {pair for pair, n in counted.items() if n >= at_least}
        self.refused: list[tuple[str, int, str]] = []
        self.legal: dict[str, list[tuple[datetime, str]]] = {}
        for name, events in traces.items():
            now = BEGIN
            for nth, (at, state) in enumerate(events, 1):
                if (now, state) in self.edges:
                    now = state
                    self.legal.setdefault(name, []).append((at, state))
                else:
                    self.refused.append((name, nth, state))

    def stays(self) -> dict[str, list[float]]:
        """Of each state how long it lasted, each time; one that lasts still, to the last time of all."""
        end = max(at for events in self.legal.values() for at, _ in events)
        found: dict[str, list[float]] = {}
        for events in self.legal.values():
            came = [one for n, one in enumerate(events) if not n or events[n - 1][1] != one[1]]
            for (since, state), (until, _) in pairwise([*came, (end, "")]):
                found.setdefault(state, []).append((until - since).total_seconds())
        return found


def spelt(state: str) -> str:
    """A state of the direct reading, as XES states are joined."""
    return state.replace("/", " / ", 1)


def check(log: Ledger, path: Path, at_least: int) -> tuple[Definition, Replayed]:
    """Find the machine in a file, replay the file through it, compare all with the direct reading."""
    read_by_hand = Walked(read(path), at_least)
    found = discover(
        ((move.to_state for move in moves) for _, moves in histories(path)), at_least=at_least, initial=BEGIN
    )
    assert {(e.from_state, e.to_state) for e in found.edges} == {
        (spelt(a), spelt(b)) for a, b in read_by_hand.edges
    }
    incident: type[Machine] = type("Incident", (Machine,), {"definition": found}, name="incident")

    done = replay(incident, log, histories(path))
    moved = read_by_hand.legal
    assert (done.objects, done.moves) == (len(moved), sum(map(len, moved.values())))
    assert [(one.about, one.nth, one.move.to_state) for one in done.refused] == [
        (name, nth, spelt(state)) for name, nth, state in read_by_hand.refused
    ]
    final = Counter(spelt(events[-1][1]) for events in moved.values())
    assert {one.status: one.streams for one in counts(log, Question(category="incident"))[1]} == final
    by_claimed = counts(log, Question(category="incident", axis=Axis.CLAIMED))[1]
    assert {one.status: one.streams for one in by_claimed} == final
    stays = read_by_hand.stays()
    rows = dwell(log, Question(category="incident", axis=Axis.CLAIMED))[1]
    assert {row.status: row.stays for row in rows} == {spelt(s): len(some) for s, some in stays.items()}
    for state, some in stays.items():
        (row,) = (row for row in rows if row.status == spelt(state))
        assert (row.total, row.longest) == (pytest.approx(sum(some)), pytest.approx(max(some)))
    return found, done


def test_a_small_log(log: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "incidents.xes.gz"
    path.write_bytes(gzip.compress("".join(xes(SMALL)).encode()))
    found, done = check(log, path, at_least=2)
    assert found.initial_state == BEGIN
    assert [(one.about, one.move.to_state) for one in done.refused] == [
        ("1-5", "Accepted / Wait - User"),
        ("1-6", "Completed / Cancelled"),
        ("1-7", "Completed / Resolved"),
        ("1-7", "Completed / Closed"),
        ("1-8", "Accepted / In Progress"),
        ("1-8", "Completed / Resolved"),
        ("1-10", "Completed / Closed"),
    ]
    again = replay(type("Incident", (Machine,), {"definition": found}, name="incident"), log, histories(path))
    assert (again.moves, len(again.left)) == (0, len(SMALL))


@pytest.mark.skipif(not FILE, reason="LEDGER_TEST_BPIC names no file of incidents")
def test_a_real_log(log: Ledger) -> None:
    _, done = check(log, Path(FILE or ""), at_least=5)
    assert done.refused
