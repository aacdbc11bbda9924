"""Laws that hold for any input: names, bodies, envelopes, states."""

from __future__ import annotations

import json
import math
import os
from datetime import UTC, datetime, timedelta, timezone
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import ledger
from ledger import BadBody, BadName, Ledger, Recorded, split_name, stream_name
from ledger.domain import canonical_json
from ledger.domain.frozen import FrozenDict, frozen
from ledger.domain.names import MAX_BYTES
from ledger.domain.state import Pending, dump, load, stamped
from tests.lamp import Lamp, LampRead

LAWS = settings(
    max_examples=int(os.environ.get("LEDGER_TEST_EXAMPLES", "100")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
SOME = settings(LAWS, max_examples=LAWS.max_examples // 3)
_numbers = count(1)

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"))
HOSTILE = st.text(st.sampled_from("/:%_-aA2F5U\x01\U0010ffffé"))
ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
PARTS = st.lists(st.one_of(TEXT, HOSTILE), max_size=4)
JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.integers(-(2**200), 2**200),
        st.floats(),
        st.sampled_from([0.0, -0.0, 1e16, 1e300, 5e-324, 0.1 + 0.2, math.inf, math.nan]),
        st.text(),
        TEXT,
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)
"""Any JSON that Python has, with some that is none: NaN, lone surrogates, NUL, -0.0."""


def same(one: Any, other: Any) -> bool:
    """Equal in value and in type, all the way down; a list is a tuple once it is frozen."""
    if type(one) is not type(other):
        return False
    if isinstance(one, FrozenDict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


# Names


@LAWS
@given(PARTS, PARTS)
def test_names_are_injective_and_can_be_read_back(one: list[str], other: list[str]) -> None:
    try:
        names = stream_name("c", *one), stream_name("c", *other)
    except BadName:
        assert max(len("".join(key).encode()) for key in (one, other)) > MAX_BYTES // 4
        return
    assert (names[0] == names[1]) == (one == other)
    assert split_name(names[0]) == ("c", tuple(one))


@LAWS
@given(st.text(min_size=1))
def test_a_key_is_a_name_or_is_refused(part: str) -> None:
    storable = "\x00" not in part and not any("\ud800" <= c <= "\udfff" for c in part)
    try:
        name = stream_name("c", part)
    except BadName:
        assert not storable or len(part.encode()) > 300
        return
    assert storable
    name.encode()
    assert name.count("/") == 1


# Bodies


@LAWS
@given(JSON)
def test_what_is_read_equals_what_was_recorded(shared: Ledger, value: Any) -> None:
    stream = f"lamp/body-{next(_numbers)}"
    try:
        text = LampRead(value=value).body()
    except BadBody:
        with pytest.raises(BadBody):
            shared.append(stream, LampRead(value=1), LampRead(value=value))
        assert not shared.streams(stream)
        return
    shared.append(stream, LampRead(value=value), expected=0)
    shared.append(stream, LampRead(value=value), LampRead(value=value))
    for found in shared.read(stream):
        assert found.data is not None
        assert canonical_json.body(json.loads(found.data)) == text
        assert isinstance(found.event, LampRead)
        assert same(found.event.value, frozen(value))


@LAWS
@given(JSON)
def test_the_canonical_form_is_one_and_stable(value: Any) -> None:
    try:
        text = canonical_json.body(value)
    except BadBody:
        return
    assert canonical_json.body(json.loads(text)) == text == canonical_json.body(frozen(value))
    assert same(frozen(json.loads(text)), frozen(value))
    if isinstance(value, dict):
        assert canonical_json.body(dict(reversed(value.items()))) == text


@LAWS
@given(JSON)
def test_what_is_refused_holds_what_json_does_not(value: Any) -> None:
    def fine(value: Any) -> bool:
        match value:
            case str():
                return "\x00" not in value and not any("\ud800" <= c <= "\udfff" for c in value)
            case float():
                return math.isfinite(value) and not (value == 0 and math.copysign(1, value) < 0)
            case list():
                return all(map(fine, value))
            case dict():
                return all(fine(key) and fine(item) for key, item in value.items())
        return True

    try:
        canonical_json.body(value)
    except BadBody:
        assert not fine(value)
    else:
        assert fine(value)


@SOME
@given(st.lists(JSON, min_size=1, max_size=3), st.text(max_size=5))
def test_an_envelope_has_the_same_bytes_whenever_it_is_read(
    shared: Ledger, values: list[Any], actor: str
) -> None:
    stream = f"lamp/envelope-{next(_numbers)}"
    try:
        shared.append(stream, *[LampRead(value=value) for value in values], actor=actor)
    except ledger.BadInput:
        assume(False)  # what is refused has no envelope
    once = shared.read(stream)
    again = shared.log(once[0].position - 1, once[-1].position)
    assert [found.canonical() for found in once] == [found.canonical() for found in again]
    assert len({found.canonical() for found in once}) == len(once)
    for found in once:
        assert found.canonical() == Recorded(*found).canonical()


# States


@LAWS
@given(JSON, st.datetimes(timezones=ZONES), st.booleans())
def test_a_state_comes_back(value: Any, at: datetime, pending: bool) -> None:
    assume(datetime(1, 1, 3, tzinfo=UTC) < at < datetime(9999, 12, 29, tzinfo=UTC))
    try:
        canonical_json.body(value)
    except BadBody:
        return
    state = Lamp(watts=1.5, made_at=Pending.clock() if pending else at, values=(frozen(value),))
    now = datetime(2026, 5, 17, 1, 2, 3, 4, tzinfo=UTC)
    text = dump(state).replace("\x01", f'"{now.isoformat()}"')
    found = load(Lamp, text)
    assert found == stamped(state, now)
    assert same(found.values, stamped(state, now).values)
    assert dump(found) == text.replace("+00:00", "Z") if pending else dump(found) == text
