"""The text of a state, and its stamping: the written functions say what a plain walk over the fields says."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from enum import Enum, IntEnum, StrEnum
from typing import Any, NamedTuple

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import BadBody, Ledger
from ledger.domain import canonical_json
from ledger.domain.frozen import FrozenDict
from ledger.domain.state import STAMP, TREE, Pending, dump, load, load_each, stamped
from tests.log.test_laws import LAWS, TEXT, ZONES


class Colour(Enum):
    RED = ("red", 1)


class Mood(StrEnum):
    GOOD = 'go"od'


class Level(IntEnum):
    HIGH = 3


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass(frozen=True, slots=True)
class Slotted:
    a: Any = None
    b: Any = None
    tree: Any = field(default=None, metadata=TREE)


@dataclass(frozen=True)
class Open:
    a: Any = None


@dataclass(frozen=True)
class Empty:
    pass


@dataclass(frozen=True)
class Checked:
    a: Any = None
    made: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "made", True)


TIMES = st.one_of(
    st.datetimes(), st.datetimes(timezones=ZONES), st.datetimes(timezones=st.just(UTC)),
    st.datetimes(timezones=st.just(timezone(timedelta(0), "Z"))), st.just(Pending.clock()),
).filter(lambda at: 1 < at.year < 9999)  # fmt: skip
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXT, TIMES,
    st.sampled_from([1e16, -1e16, 1e15, 1e300, 5e-324, -0.0, *Colour, *Mood, *Level, date(2026, 5, 17)]),
)  # fmt: skip
STATES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(Slotted, inner, inner, st.just(object())), st.builds(Open, inner), st.just(Empty()),
        st.builds(Checked, inner), st.builds(Pair, inner, inner), st.lists(inner, max_size=3).map(tuple),
        st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3).map(FrozenDict),
        st.dictionaries(st.integers(), inner, max_size=3), st.frozensets(TEXT, max_size=3),
    ),
    max_leaves=12,
)  # fmt: skip


def _fields(state: Any) -> dict[str, Any]:
    return {f.name: getattr(state, f.name) for f in dataclasses.fields(state) if "tree" not in f.metadata}


def _plain(state: Any) -> str:
    """What `dump` must say, a case a line."""
    quote = json.JSONEncoder(ensure_ascii=False).encode
    match state:
        case Pending():
            return STAMP
        case datetime():
            return quote(state.isoformat().replace("+00:00", "Z"))
        case date():
            return quote(state.isoformat())
        case Enum() if not isinstance(state, int):
            return _plain(state.value)
        case float():
            return canonical_json.number(state + 0.0)
        case None | int() | str():
            return quote(state)
        case Mapping():
            return "{" + ",".join(f"{quote(str(key))}:{_plain(item)}" for key, item in state.items()) + "}"
        case frozenset():
            return "[" + ",".join(sorted(map(_plain, state))) + "]"
        case tuple() | list():
            return "[" + ",".join(map(_plain, state)) + "]"
        case _:
            return "{" + ",".join(f'"{name}":{_plain(item)}' for name, item in _fields(state).items()) + "}"


def _with(state: Any, at: datetime) -> Any:
    """What `stamped` must say: lists and sets hold no time of their own."""
    match state:
        case Pending():
            return at
        case tuple():
            items = [_with(item, at) for item in state]
            return Pair(*items) if isinstance(state, Pair) else tuple(items)
        case Mapping():
            return {key: _with(item, at) for key, item in state.items()}
        case _ if dataclasses.is_dataclass(state) and not isinstance(state, type):
            given = {name: _with(item, at) for name, item in _fields(state).items() if name != "made"}
            return dataclasses.replace(state, **given)
        case _:
            return state


@LAWS
@given(STATES)
def test_a_state_is_dumped_as_a_plain_walk_says(state: Any) -> None:
    assert dump(state) == _plain(state)
    assert dump(Slotted(state, 1)) == _plain(Slotted(state, 1))


@LAWS
@given(STATES, STATES)
def test_every_pending_time_and_nothing_else_is_stamped(one: Any, other: Any) -> None:
    at = datetime(2026, 5, 17, 12, tzinfo=UTC)
    for state in (Slotted(one, other), Open(one), Checked(one), Empty()):
        found = stamped(state, at)
        assert found == _with(state, at)
        assert type(found) is type(state)
        assert _plain(found) == _plain(_with(state, at))


def test_a_state_without_pending_times_stays_the_same_object() -> None:
    state = Slotted((1, Pair("a", datetime.now(UTC))), FrozenDict({"a": (1,)}))
    assert stamped(state, datetime.now(UTC)) is state


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_json_has_not_is_refused(number: float) -> None:
    for state in (number, Slotted(number), (number,)):
        with pytest.raises(BadBody, match="not a number"):
            dump(state)


@dataclass(frozen=True, slots=True)
class Usual:
    """Of types that msgspec writes and reads by itself."""

    status: Mood | None = None
    at: datetime | None = None
    counts: tuple[int, ...] = ()
    pair: Pair | None = None


@dataclass(frozen=True)
class Odd:
    """Of a union that only pydantic reads."""

    mood: Mood | datetime | None = None
    parts: Mapping[str, tuple[float, ...]] = field(default_factory=FrozenDict)


USUAL = st.builds(
    Usual, st.sampled_from([None, *Mood]), st.none() | TIMES, st.lists(st.integers()).map(tuple),
)  # fmt: skip


@LAWS
@given(USUAL)
def test_a_usual_state_is_dumped_as_a_plain_walk_says_and_comes_back(state: Usual) -> None:
    assert dump(state) == _plain(state)
    if type(state.at) is not Pending:
        assert load(Usual, dump(state)) == state
        assert load_each(Usual, [dump(state)] * 2) == [state, state]


def test_a_state_that_only_pydantic_reads_comes_back() -> None:
    state = Odd(Mood.GOOD, FrozenDict({"a": (1e16, 0.5)}))
    assert dump(state) == '{"mood":"go\\"od","parts":{"a":[10000000000000000.0,0.5]}}'
    assert load(Odd, dump(state)) == state
    assert type(load(Odd, dump(state)).parts) is FrozenDict


@pytest.mark.parametrize("text", ["[]", '{"counts":["a"]}', '{"status":"bad"}', "{"])
def test_what_is_no_state_of_the_class_is_a_value_error(text: str) -> None:
    for kind in (Usual, Odd):
        if kind is Usual or text in ("[]", "{"):
            with pytest.raises(ValueError, match=r"\w"):
                load(kind, text)


@pytest.mark.parametrize("microsecond", [0, 5, 100])
def test_a_time_of_the_database_is_written_as_one_of_a_state(
    log: Ledger, admin_dsn: str, microsecond: int
) -> None:
    at = datetime(2026, 5, 17, 12, microsecond=microsecond, tzinfo=UTC)
    with psycopg.connect(admin_dsn) as connection:
        pending = dump(Usual(at=Pending.clock()))
        row = connection.execute("SELECT ledger.stamped(%s, %s)", [pending, at]).fetchone()
    assert row is not None
    assert row[0] == json.loads(dump(Usual(at=at)))
