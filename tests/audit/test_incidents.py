"""A real log of incidents on the claimed axis: states at any claimed time equal a direct reading of the file.

LEDGER_TEST_BPIC names a gzipped XES file whose events carry `time:timestamp`, `concept:name` and
`lifecycle:transition`, such as that of the BPI Challenge 2013; without it there is nothing to read.
"""

from __future__ import annotations

import gzip
import os
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ledger import Append, Body, Ledger, stream_name
from ledger.domain.topics import TopicStatus
from ledger.log.announce import announce_statuses
from ledger.log.append import ANY
from ledger.log.recorded import Meta
from projections.audit import Axis, Moment, Question, counts, states, stays

FILE = os.environ.get("LEDGER_TEST_BPIC")
pytestmark = pytest.mark.skipif(not FILE, reason="LEDGER_TEST_BPIC names no file of incidents")

Read = dict[str, list[tuple[datetime, str]]]
"""For each trace the times and states of its events, in the order of the file."""


def read(path: Path) -> Read:
    """The traces of a file, by name."""
    found: Read = {}
    with gzip.open(path) as file:
        for _, element in ElementTree.iterparse(file):
            if element.tag.endswith("}trace"):
                events = [child for child in element if child.tag.endswith("}event")]
                found[text(element, "concept:name")] = [
                    (
                        datetime.fromisoformat(text(event, "time:timestamp")).astimezone(UTC),
                        f"{text(event, 'concept:name')}/{text(event, 'lifecycle:transition')}",
                    )
                    for event in events
                ]
                element.clear()
    return found


def text(element: ElementTree.Element, key: str) -> str:
    return next(child.attrib["value"] for child in element if child.attrib.get("key") == key)


def record(log: Ledger, traces: Read, chance: random.Random) -> None:
    """All events, a stream for each trace; streams in any order, so that times and positions disagree."""
    names = list(traces)
    chance.shuffle(names)
    announce_statuses(log, {"incident.recorded": TopicStatus(field="state")})
    for start in range(0, len(names), 100):
        some = names[start : start + 100]
        log.append_all([Append(stream_name("incident", name), bodies(traces[name]), ANY) for name in some])


def bodies(events: list[tuple[datetime, str]]) -> list[Body]:
    return [
        Body("incident.recorded", 1, f'{{"state":"{state}"}}', meta=Meta(claimed_at=at).body())
        for at, state in events
    ]


def state_at(events: list[tuple[datetime, str]], at: datetime) -> tuple[str, datetime] | None:
    """What a trace is in at a time, and since when: read from the file's events alone."""
    came = sorted(((t, n, state) for n, (t, state) in enumerate(events) if t <= at))
    if not came:
        return None
    first = len(came) - 1
    while first and came[first - 1][2] == came[first][2]:
        first -= 1
    return came[-1][2], came[first][0]


def test_states_at_any_claimed_time_equal_a_direct_reading(log: Ledger) -> None:
    chance = random.Random(2013)
    assert FILE is not None
    traces = read(Path(FILE))
    record(log, traces, chance)
    times = sorted(at for events in traces.values() for at, _ in events)
    moments = [times[0] - timedelta(days=1), times[0], times[-1], *chance.sample(times, 12)]
    moments += [times[0] + (times[-1] - times[0]) * chance.random() for _ in range(12)]
    for at in moments:
        question = Question(Moment(time=at), "incident", axis=Axis.CLAIMED)
        expected = {
            stream_name("incident", name): found
            for name, events in traces.items()
            if (found := state_at(events, at)) is not None
        }
        answer, rows = states(log, question)
        assert {row.stream: (row.status, row.since) for row in rows} == expected
        assert answer.beyond == (at >= times[-1])
        counted = counts(log, question)[1]
        assert {row.status: row.streams for row in counted} == Counter(s for s, _ in expected.values())
    _, visited = stays(log, Question(category="incident", axis=Axis.CLAIMED))
    total = sum((events[-1][0] - events[0][0]).total_seconds() for events in map(sorted, traces.values()))
    closed = sum(stay.seconds for stay in visited if stay.until is not None)
    last = {stay.stream: stay for stay in visited}
    came = sum(  # from the last change of status to the last event, where that is the same status again
        (max(at for at, _ in events) - last[stream_name("incident", name)].since).total_seconds()
        for name, events in traces.items()
    )
    assert closed + came == pytest.approx(total)
