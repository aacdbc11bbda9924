"""The fold of all streams: over ranges and processes it comes to what each stream alone comes to."""

from __future__ import annotations

from dataclasses import fields, replace
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger import Append, BadInput, Ledger, ServerUnavailable, stream_name
from ledger.domain.frozen import changed
from ledger.domain.known import KNOWN
from ledger.log.append import body_of
from ledger.pipelines import LSMStripState
from projections.fold import ALL, FoldSession, Place, Which, folds_of, in_processes, partitions
from tests.benchmarks.mixed_log import fill
from tests.lamp import LampRead, OpenLamp
from tests.verify.counting import Counting

PARTS = st.text(st.characters(min_codepoint=1, exclude_categories=["Cs"]), min_size=1, max_size=4)


def folded(log: Ledger, which: Which = ALL, per: int = 10) -> list[tuple[str, int, str | None, str | None]]:
    """Name, version, status and state of every stream, folded range by range."""
    with FoldSession(*Place.of(log)) as session:
        pieces, _ = partitions(session.connection, log.schema, which, per=per)
        return [
            (fold.stream, fold.version, fold.status, fold.state)
            for piece in pieces
            for fold, _ in folds_of(session, piece)
        ]


def alone(log: Ledger) -> list[tuple[str, int, str | None, str | None]]:
    """The same, each stream opened from its events."""
    found = []
    with FoldSession(*Place.of(log)) as session:
        for info in log.streams(limit=10_000):
            kind = KNOWN.streams.get(info.stream.split("/")[0])
            events = log.read(info.stream)
            fold = session.folder.fold(info.stream, ())
            if kind is None or fold.opened is None:
                found.append((info.stream, info.version, None, None))
                continue
            opened = type(fold.opened)(*fold.opened.key)
            for event in events:
                opened.replay(event.event, event.recorded_at)
            fold.opened = opened
            status = opened.state.status
            found.append((info.stream, info.version, None if status is None else status.value, fold.state))
    return found


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    names=st.lists(PARTS, min_size=1, max_size=12, unique=True),
    per=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_ranges_together_hold_every_stream_once(log: Ledger, names: list[str], per: int, seed: int) -> None:
    chance = Random(seed)
    appends = [
        Append(stream_name("lamp", name), [body_of(LampRead(value=n)) for n in range(chance.randint(1, 9))])
        for name in names
    ]
    log.append_all(appends)
    with FoldSession(*Place.of(log)) as session:
        pieces, events = partitions(session.connection, log.schema, per=per)
        assert [piece.start for piece in pieces[1:]] == [piece.below for piece in pieces[:-1]]
        assert sum(fold.events for piece in pieces for fold, _ in folds_of(session, piece)) == events
    assert folded(log, per=per) == alone(log)


def test_a_mixed_log_in_ranges_is_the_fold_of_each_stream(log: Ledger) -> None:
    filled = fill(log, 700)
    assert filled.events >= 700
    found = folded(log, per=50)
    assert len(found) == filled.streams
    assert found == alone(log)


@pytest.fixture(autouse=True)
def only_what_can_be_imported(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Tests of a session declare streams in odd places; a program's modules can be imported."""
    monkeypatch.setattr(KNOWN, "modules", lambda: ["tests.lamp"])
    monkeypatch.setenv("MARKER", str(tmp_path / "marker"))


@pytest.mark.parametrize("processes", [1, 2])
def test_results_and_progress_come_from_processes(processes: int) -> None:
    told: list[int] = []
    results = sorted(in_processes(Counting(), ["a", "bb", "ccc"], processes, told.append))
    assert (results, sum(told)) == ([1, 2, 3], 6)


def test_a_child_that_is_killed_is_replaced() -> None:
    told: list[int] = []
    results = in_processes(Counting("die once"), ["a", "b", "c"], 2, told.append)
    assert (sorted(results), sum(told)) == ([1, 1, 1], 3)


@pytest.mark.slow
def test_children_that_keep_being_killed_end_the_work() -> None:
    with pytest.raises(ServerUnavailable, match=r"ended by signal 9, after 3 others"):
        [*in_processes(Counting("die"), ["a", "b"], 2)]


def test_what_the_work_raises_comes_as_it_was() -> None:
    with pytest.raises(BadInput, match=r"^[ab] is no piece$"):
        [*in_processes(Counting("fail"), ["a", "b"], 2)]
    with pytest.raises(ServerUnavailable, match=r"^no such place$"):
        [*in_processes(Counting("unopened"), ["a", "b"], 2)]
    with pytest.raises(BadInput, match="give 1 or more"):
        [*in_processes(Counting(), ["a"], 0)]


def test_a_module_that_only_this_process_has_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KNOWN, "modules", lambda: ["only.here"])
    with pytest.raises(BadInput, match=r"another process cannot import only\.here, which declares streams"):
        [*in_processes(Counting(), ["a", "b"], 2)]


def test_streams_of_a_main_module_are_folded_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KNOWN, "modules", lambda: ["__main__"])
    monkeypatch.setattr("subprocess.Popen", None)
    assert [*in_processes(Counting(), ["a", "bb"], 2)] == [1, 2]


def test_changing_fields_is_replacing_them() -> None:
    strip = LSMStripState("p", 1, 2, 3)
    strip.create(under=4)
    for field in fields(strip.state):
        new = {field.name: 7}  # an id must be a number
        assert changed(strip.state, **new) == replace(strip.state, **new)
    assert changed(strip.state) == strip.state
    lamp = OpenLamp("a").state
    assert changed(lamp, read=3) == replace(lamp, read=3)
    with pytest.raises(TypeError, match="no such field"):
        changed(lamp, nothing=3)
