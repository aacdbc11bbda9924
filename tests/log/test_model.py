"""Sequences of appends against a model in memory."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ledger
from ledger import (
    ANY,
    EXISTS,
    Append,
    Body,
    CommandReused,
    Exact,
    Expected,
    Guard,
    GuardFailed,
    Ledger,
    StreamConflict,
)
from ledger.log.append import append_of, body_of
from tests.lamp import LampBroke, LampMade, LampRead, LampSwitchedOn, OpenLamp

LAWS = settings(
    max_examples=int(os.environ.get("LEDGER_TEST_EXAMPLES", "100")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
SOME = settings(LAWS, max_examples=LAWS.max_examples // 3)
_numbers = count(1)
_numbers = count(1)


@dataclass
class Model:
    """What the ledger should hold: events by stream, heads, what commands recorded."""

    streams: dict[str, list[int]] = field(default_factory=dict)
    status: dict[str, str | None] = field(default_factory=dict)
    commands: dict[str, tuple[Any, dict[str, int]]] = field(default_factory=dict)

    def expects(self, name: str, expected: Expected, guarded: dict[str, str | None]) -> bool:
        version = len(self.streams.get(name, []))
        match expected:
            case Exact(wanted):
                return version == wanted
            case Guard(statuses, _):
                return version > 0 and (statuses is None or guarded.get(name) in statuses)
        return expected is ANY or version > 0


EXPECTED = st.one_of(
    st.just(ANY),
    st.just(EXISTS),
    st.integers(0, 5).map(Exact),
    st.just("now"),
    st.just("now"),
    st.sampled_from([Guard(frozenset({"on", "made"})), Guard(frozenset({"broken"})), Guard()]),
)
EVENTS = st.lists(st.sampled_from(["made", "on", "broken", "read"]), max_size=3)
ONE = st.tuples(st.sampled_from("abc"), EVENTS, EXPECTED, st.booleans())
STEPS = st.lists(
    st.tuples(
        st.lists(ONE, min_size=1, max_size=3, unique_by=lambda one: one[0]),
        st.one_of(st.none(), st.none(), st.sampled_from(["c1", "c2"])),
        st.booleans(),
    ),
    max_size=12,
)
KINDS = {"made": LampMade, "on": LampSwitchedOn, "broken": LampBroke, "read": LampRead}


def run_steps(log: Ledger, steps: Any, heads: bool) -> None:
    """Do every step in the ledger and in the model, and compare all that can be seen."""
    model, prefix, last = Model(), f"lamp/{next(_numbers)}-", log.bound()
    numbers = count(1)
    for ones, command, opened in steps:
        command = None if command is None else f"{prefix}{command}"
        before = {name: list(values) for name, values in model.streams.items()}
        if opened and command is None:
            name = ones[0][0]
            lamp = log.load(OpenLamp, f"{prefix}{name}".removeprefix("lamp/"))
            assert lamp.version == len(model.streams.get(name, []))
            number = next(numbers)
            lamp.read(number)
            done = log.append_all([append_of(lamp)])
            model.streams.setdefault(name, []).append(number)
            model.status[name] = model.status.get(name)
        else:
            taken = attempt(log, model, prefix, ones, command, heads, numbers)
            if taken is None:
                assert model.streams == before
                continue
            done = taken
        if not done.repeated:
            assert done.first_position > last
            last = done.last_position
            assert log.bound() == last
    compare(log, model, prefix)


def attempt(
    log: Ledger,
    model: Model,
    prefix: str,
    ones: Any,
    command: str | None,
    heads: bool,
    numbers: Iterator[int],
) -> ledger.Appended | None:
    """One append of many streams, and what the model says of it; None where it is refused."""
    appends, news, content = [], {}, []
    for name, kinds, wanted, head in ones:
        expected = Exact(len(model.streams.get(name, []))) if wanted == "now" else wanted
        number = next(numbers)
        bodies = [body_of(LampRead(value=number) if kind == "read" else KINDS[kind]()) for kind in kinds]
        statuses = [kind for kind in kinds if kind != "read"]
        status = statuses[-1] if statuses else None
        appends.append(Append(f"{prefix}{name}", bodies, expected, status=status, head=heads or head))
        news[name] = ([number if kind == "read" else kind for kind in kinds], status)
        content.append((name, tuple((body.topic, body.data) for body in bodies)))
    content = sorted(one for one in content if one[1])
    fits = all(model.expects(a.stream.removeprefix(prefix), a.expected, model.status) for a in appends)
    known = model.commands.get(command or "")
    try:
        done = log.append_all(appends, command=command)
    except ledger.BadInput:
        assert not content
        return None
    except CommandReused:
        assert known is not None
        assert known[0] != content
        return None
    except (StreamConflict, GuardFailed):
        assert not fits
        assert known is None
        return None
    assert content
    if known is not None:
        assert done.repeated
        assert known[0] == content
        assert {name: done.versions[prefix + name] for name, _ in content} == {
            name: known[1][prefix + name] for name, _ in content
        }
        return done
    assert fits
    assert not done.repeated
    for name, (values, status) in news.items():
        if values:
            model.streams.setdefault(name, []).extend(values)
            model.status[name] = status or model.status.get(name)
        assert done.versions[prefix + name] == len(model.streams.get(name, []))
    assert done.last_position - done.first_position + 1 == sum(len(values) for values, _ in news.values())
    if command is not None:
        model.commands[command] = (content, dict(done.versions))
    return done


def compare(log: Ledger, model: Model, prefix: str) -> None:
    infos = {info.stream.removeprefix(prefix): info for info in log.streams(prefix)}
    assert {name: info.version for name, info in infos.items()} == {
        name: len(values) for name, values in model.streams.items()
    }
    for name, values in model.streams.items():
        found = log.read(prefix + name)
        assert [one.version for one in found] == list(range(1, len(values) + 1))
        assert [one.position for one in found] == sorted({one.position for one in found})
        assert [_shown(one.event) for one in found] == values
        key = (prefix + name).removeprefix("lamp/")
        folded = OpenLamp(key, past=[(one.event, one.recorded_at) for one in found])
        opened = log.load(OpenLamp, key)
        assert (opened.version, opened.state) == (folded.version, folded.state)


def _shown(event: Any) -> Any:
    return event.value if isinstance(event, LampRead) else event.to.value


@SOME
@given(STEPS)
def test_appends_are_what_the_model_says(shared: Ledger, steps: Any) -> None:
    run_steps(shared, steps, heads=True)


@SOME
@given(
    STEPS.map(
        lambda steps: [
            ([_unguarded(one) for one in ones], command, opened) for ones, command, opened in steps
        ]
    )
)
def test_appends_with_and_without_heads_are_what_the_model_says(shared: Ledger, steps: Any) -> None:
    run_steps(shared, steps, heads=False)


def _unguarded(one: tuple[Any, ...]) -> tuple[Any, ...]:
    """A guard asks the head, and not every stream here has one."""
    return (*one[:2], EXISTS if isinstance(one[2], Guard) else one[2], one[3])


@pytest.mark.slow
def test_appends_are_what_the_model_says_for_long(shared: Ledger, minutes: float) -> None:
    """The same for as long as the campaign runs, with longer sequences."""
    deadline = time.monotonic() + minutes * 60
    longer = settings(LAWS, max_examples=200, database=None)
    while time.monotonic() < deadline:
        longer(given(STEPS)(lambda steps: run_steps(shared, steps, heads=True)))()


def test_a_body_of_the_model_is_no_event_of_ours() -> None:
    """The model's control: a body that differs is seen."""
    assert body_of(LampRead(value=1)) != body_of(LampRead(value=1.0))
    assert Body("lamp.read", 1, '{"value":1}') == body_of(LampRead(value=1))
