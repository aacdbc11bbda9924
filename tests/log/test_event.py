"""Facts: frozen, strict when recorded, lenient when read, lifted from older shapes; states kept as JSON."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from pydantic import BaseModel, ValidationError

from ledger import BadBody, BadInput, Event, Meta, Recorded, Unknown, UnreadableEvent, acting
from ledger.domain.frozen import FrozenDict
from ledger.domain.state import STAMP, TREE, Pending, dump, load, stamped
from ledger.domain.topics import read_event
from ledger.log.recorded import ambient
from tests.lamp import LampMade, LampRead, LampSwitchedOn

NOON = datetime(2026, 5, 17, 12, 0, 0, 123456, tzinfo=UTC)


class Point(BaseModel):
    x: float
    y: float


class Pair(NamedTuple):
    left: int
    right: int


class Measured(Event, topic="event_test.measured", schema=3):
    """Schema 1 had one `width`; 2 had `size` in millimetres; 3 has it in micrometres."""

    size_um: list[float]
    at: datetime | None = None
    tags: frozenset[str] = frozenset()
    where: tuple[Point, ...] = ()
    ident: UUID | None = None
    exact: Decimal | None = None

    @classmethod
    def upcast(cls, data: dict[str, Any], schema: int) -> dict[str, Any]:
        if schema < 2:
            data["size"] = [data.pop("width")]
        data["size_um"] = [size * 1000 for size in data.pop("size")]
        return data


def test_threads_that_are_the_first_to_use_a_class_share_it() -> None:
    """A class is built when it is first used, which pydantic before 2.14.3 does not guard."""
    for nth in range(40):
        made = types.new_class(f"Fresh{nth}", (LampRead,), {})
        assert not made.__pydantic_complete__
        gate = threading.Barrier(4)

        def use(kind: type[LampRead] = made, gate: threading.Barrier = gate) -> object:
            gate.wait()
            return kind(value=1), kind.read('{"value": 2}', 1)

        with ThreadPoolExecutor(4) as threads:
            found = [done.result() for done in [threads.submit(use) for _ in range(4)]]
        assert found == [(made(value=1), made(value=2))] * 4


def test_a_fact_is_frozen_all_the_way_down() -> None:
    made = LampMade(notes={"a": [1, {"b": 2}]})
    with pytest.raises(ValidationError, match="frozen"):
        made.watts = 2.0
    with pytest.raises(TypeError):
        made.notes["a"] = 1
    with pytest.raises(TypeError):
        made.notes["a"][1]["b"] = 3
    read = LampRead(value=([1], {"a": [2]}))
    assert read.value == ((1,), {"a": (2,)})
    assert read == LampRead.read(read.body(), 1)
    assert pickle.loads(pickle.dumps(made)) == made


def test_recording_refuses_what_no_field_takes() -> None:
    for wrong in ({"wats": 1}, {"watts": "many"}, {"watts": float("nan")}, {"watts": float("inf")}):
        with pytest.raises(ValueError, match="LampMade"):
            LampMade(**wrong)
    with pytest.raises(ValueError, match="LampMade"):
        LampMade(notes={1: 2})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    "value",
    [float("nan"), -0.0, "\x00", "\ud800", {1: 2}, {"a": [float("inf")]}, 10**5000],
    ids=lambda value: type(value).__name__,
)
def test_a_body_that_would_be_changed_is_refused(value: Any) -> None:
    with pytest.raises(BadBody, match="value"):
        LampRead(value=value).body()


def test_reading_ignores_unknown_fields() -> None:
    assert read_event("lamp.made", 1, '{"watts":5.0,"colour":"red","notes":{}}') == LampMade(watts=5)


def test_an_unknown_topic_is_carried_along() -> None:
    found = read_event("moon.rose", 4, '{"a":[1,{"b":2}]}')
    assert found == Unknown("moon.rose", 4, {"a": (1, {"b": 2})})
    assert found.to is None


def test_older_shapes_are_lifted() -> None:
    now = Measured(size_um=[1500.0])
    assert read_event("event_test.measured", 1, '{"width":1.5}') == now
    assert read_event("event_test.measured", 2, '{"size":[1.5]}') == now
    assert read_event("event_test.measured", 3, '{"size_um":[1500.0]}') == now


def test_a_newer_shape_that_this_code_cannot_read_is_carried_along() -> None:
    assert read_event("event_test.measured", 4, '{"size_nm":[1]}') == Unknown(
        "event_test.measured", 4, {"size_nm": (1,)}
    )
    with pytest.raises(UnreadableEvent, match=r"measured cannot be read: size_um: Field required"):
        read_event("event_test.measured", 3, '{"size_nm":[1]}')


def test_rich_fields_come_back_as_they_were() -> None:
    event = Measured(
        size_um=[0.1 + 0.2, 1e300],
        at=NOON.astimezone(timezone(timedelta(hours=5, minutes=30))),
        tags=frozenset({"b", "a"}),
        where=(Point(x=1, y=2),),
        ident=UUID(int=5),
        exact=Decimal("0.10"),
    )
    assert Measured.read(event.body(), 3) == event
    assert '"tags":["a","b"]' in event.body()


def test_a_set_has_one_body_in_every_process() -> None:
    code = (
        "from tests.log.test_event import Measured; from ledger.domain.state import dump\n"
        "tags = frozenset(map(str, range(50)))\n"
        "print(Measured(size_um=[], tags=tags).body(), dump(tags))"
    )
    root = str(Path(__file__).parents[2])
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": root},
            cwd=root,
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1


def test_a_topic_belongs_to_one_class() -> None:
    with pytest.raises(TypeError, match=r"topic 'lamp.made' already names LampMade"):

        class Second(Event, topic="lamp.made"):
            pass


def test_a_topic_is_checked() -> None:
    with pytest.raises(BadInput, match="topic"):

        class Wrong(Event, topic="Lamp Made"):
            pass


# Meta


def test_meta_comes_back_and_ignores_what_newer_code_adds() -> None:
    meta = Meta("mina", "c-1", 17, "k-1", NOON.astimezone(timezone(timedelta(hours=-3))))
    assert Meta.read(meta.body()) == meta
    assert Meta.read('{"actor":"mina","mood":"good"}') == Meta("mina")
    assert Meta.read(None) == Meta.read("{}") == Meta()
    assert Meta().body() == "{}"


@pytest.mark.parametrize(
    "meta",
    [
        Meta(actor="a\x00"),
        Meta(actor="\ud800"),
        Meta(actor=object()),  # type: ignore[arg-type]
        Meta(correlation="x" * 20_000_000),
        Meta(command=""),
        Meta(command=5),  # type: ignore[arg-type]
        Meta(command="\x00"),
        Meta(claimed_at=datetime(2026, 1, 1)),  # noqa: DTZ001
        Meta(claimed_at="yesterday"),  # type: ignore[arg-type]
    ],
)
def test_meta_that_cannot_be_kept_is_refused(meta: Meta) -> None:
    with pytest.raises(BadInput):
        meta.body()


def test_acting_nests_and_ends() -> None:
    with acting(actor="mina", correlation="c"):
        with acting(actor="robot") as inner:
            assert ambient() == inner == Meta("robot", "c")
        assert ambient() == Meta("mina", "c")
    assert ambient() == Meta()
    with pytest.raises(TypeError, match="colour"), acting(colour="red"):
        pass


# The canonical bytes of an envelope


def test_the_bytes_of_an_envelope_hold_every_part() -> None:
    one = Recorded(1, "s", 1, "t", 1, '{"a": 1}', None, '{"actor": "m"}', NOON)
    assert one.canonical() == b'[1,"s",1,"t",1,{"a":1},null,{"actor":"m"},1779019200,123456]'
    others = [
        Recorded(2, "s", 1, "t", 1, '{"a": 1}', None, '{"actor": "m"}', NOON),
        Recorded(1, "s", 1, "t", 1, '{"a": 1.0}', None, '{"actor": "m"}', NOON),
        Recorded(1, "s", 1, "t", 1, None, b'{"a":1}', '{"actor": "m"}', NOON),
        Recorded(1, "s", 1, "t", 1, '{"a": 1}', None, None, NOON),
        Recorded(1, "s", 1, "t", 1, '{"a": 1}', None, '{"actor": "m"}', NOON + timedelta(microseconds=1)),
    ]
    assert len({one.canonical(), *(other.canonical() for other in others)}) == 6


# States


class Mood(StrEnum):
    GOOD = "good"


@dataclass(frozen=True, slots=True)
class Part:
    since: datetime
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class State:
    status: Mood | None = None
    at: datetime | None = None
    parts: tuple[Part, ...] = ()
    by_id: dict[int, Part] = field(default_factory=dict)
    seen: frozenset[str] = frozenset()
    anything: Any = None
    pair: Pair | None = None
    day: date | None = None
    total: float = 0.0
    tree: tuple[Any, ...] = field(default=(), metadata=TREE)


def test_a_state_comes_back_as_deeply_frozen_as_it_was() -> None:
    part = Part(NOON, FrozenDict({"a": (1, FrozenDict({"b": (2,)}))}))
    state = State(
        Mood.GOOD, NOON, (part,), FrozenDict({3: part}), frozenset({"b", "a"}),
        FrozenDict({"x": (1, 2.0, None, True, "s", 2**70)}), Pair(1, 2), date(2026, 5, 17), 0.1 + 0.2,
    )  # fmt: skip
    found = load(State, dump(state))
    assert found == state
    assert dump(found) == dump(state)
    for at, key in ((found.parts[0].notes, "a"), (found.by_id, 3), (found.anything, "x")):
        with pytest.raises(TypeError):
            at[key] = 1  # type: ignore[index]
    assert isinstance(found.pair, Pair)
    assert isinstance(found.anything["x"], tuple)


def test_what_belongs_to_a_tree_is_not_kept() -> None:
    assert load(State, dump(State(tree=(1, 2)))) == State()


def test_a_computed_minus_zero_is_kept_as_zero() -> None:
    assert load(State, dump(State(total=-0.0))).total == 0.0
    with pytest.raises(BadBody, match="not a number"):
        dump(State(total=float("nan")))


def test_pending_times_become_the_time_of_the_append() -> None:
    pending = Pending.clock()
    state = State(at=pending, parts=(Part(pending), Part(NOON)), by_id=FrozenDict({1: Part(pending)}))
    later = NOON + timedelta(days=1)
    text = dump(state)
    assert text.count(STAMP) == 3
    as_stored = text.replace(STAMP, f'"{later.isoformat()}"')
    assert load(State, as_stored) == stamped(state, later)
    assert stamped(state, later).parts == (Part(later), Part(NOON))
    assert not any(
        isinstance(value, Pending) for value in (stamped(state, later).at, load(State, as_stored).at)
    )


def test_a_stamp_in_a_text_of_the_user_is_no_stamp() -> None:
    assert STAMP not in dump(State(anything=f"a{STAMP}b"))
    assert load(State, dump(State(anything=STAMP))).anything == STAMP


def test_years_before_1000_are_kept() -> None:
    early = datetime(33, 4, 3, tzinfo=UTC)
    assert load(State, dump(State(at=early))).at == early


def test_a_switch_has_no_fields() -> None:
    assert LampSwitchedOn().body() == "{}"
