"""Histories against definitions: what went against the present one, or against the one that a move names."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from ledger import BadInput, Ledger, UnknownMachine
from ledger.log.append import ANY, Append, body_of
from ledger.machines import From, Machine, State
from projections.machines import Why, changed, definitions, illegal, illegal_pairs, machine_info, machines


def first() -> type[Machine]:
    """A parcel that may be sent, come back, be lost, and be given away at once."""

    class Parcel(Machine, name="checked_parcel"):
        HERE = State("here", initial=True)
        SENT = State("sent")
        LOST = State("lost")
        table = (From(HERE).To(SENT, LOST), From(SENT).To(HERE, LOST))

    return Parcel


def second() -> type[Machine]:
    """The same, from when on nothing is lost here; and a sent one is due after a day."""

    class Parcel(Machine, name="checked_parcel"):
        HERE = State("here", initial=True)
        SENT = State("sent")
        FOUND = State("found")
        table = (From(HERE).To(SENT), From(SENT).To(HERE, after=timedelta(days=1)), From(SENT).To(FOUND))

    return Parcel


def moved(log: Ledger, key: str, *moves: tuple[str | None, str, int]) -> None:
    """Append moves as they are, whatever a machine would say: from, to, number of the definition."""
    fact = first().streams().MOVED
    events = [fact(from_state=old, to_state=new, definition=number) for old, new, number in moves]
    log.append(f"checked_parcel/{key}", *events)


def test_a_legal_history_has_nothing_to_show(log: Ledger) -> None:
    parcel = first()(log, "A")
    for state in ("sent", "here", "sent", "lost"):
        parcel.move(state)
    assert list(illegal(log, first())) == []
    assert illegal_pairs(log, "checked_parcel") == []


def test_a_new_definition_shows_what_it_does_not_allow(log: Ledger) -> None:
    """Given moves by the first definition, when the second removes `lost`, then those are shown (W2-15)."""
    for key in ("A", "B"):
        first()(log, key).move("lost")
    third = first()(log, "C/1")
    third.move("sent")
    third.move("lost")
    second()(log, "D").move("sent")
    found = list(illegal(log, "checked_parcel"))
    assert [(one.stream, one.key, one.version, one.from_state, one.to_state) for one in found] == [
        ("checked_parcel/A", ("A",), 1, "here", "lost"),
        ("checked_parcel/B", ("B",), 1, "here", "lost"),
        ("checked_parcel/C%2F1", ("C/1",), 2, "sent", "lost"),
    ]
    assert {(one.definition, one.stood == one.from_state, one.why) for one in found} == {
        (1, True, (Why.NOT_ALLOWED,))
    }
    assert found[0].at == log.read("checked_parcel/A")[0].recorded_at
    assert found[0].position == log.read("checked_parcel/A")[0].position
    assert [
        (one.from_state, one.to_state, one.moves, one.objects) for one in illegal_pairs(log, second())
    ] == [
        ("here", "lost", 2, 2),
        ("sent", "lost", 1, 1),
    ]
    assert list(illegal(log, "checked_parcel", 1)) == [], "by the first they were right"
    assert len(list(illegal(log, "checked_parcel", 2))) == 3
    assert len(list(illegal(log, "checked_parcel", limit=2))) == 2


def test_a_class_is_held_against_before_it_is_recorded(log: Ledger) -> None:
    """A definition that is to be deployed tells what it would go against."""
    first()(log, "A").move("lost")
    assert [one.to_state for one in illegal(log, second())] == ["lost"]
    assert list(illegal(log, "checked_parcel")) == []


def test_moves_that_came_from_elsewhere_or_name_a_wrong_definition(log: Ledger) -> None:
    first()(log, "A").move("sent")
    moved(log, "jump", ("here", "sent", 1), ("here", "sent", 1))
    moved(log, "late", ("sent", "here", 1))
    moved(log, "wrong", ("here", "lost", 1), ("lost", "here", 1))
    moved(log, "nobody", ("here", "sent", 7))
    moved(log, "import", (None, "here", 0), ("here", "sent", 0), ("sent", "sent", 0))
    moved(log, "begun", (None, "sent", 0), ("sent", "here", 0), (None, "sent", 0))
    moved(log, "odd", (None, "found", 0))
    moved(log, "forged", (None, "sent", 1))
    shown = {(one.key[0], one.version): (one.stood, set(one.why)) for one in illegal(log, "checked_parcel")}
    assert shown == {
        ("jump", 2): ("sent", {Why.NOT_THERE}),
        ("late", 1): ("here", {Why.NOT_THERE}),
        ("wrong", 2): ("lost", {Why.NOT_ALLOWED, Why.NOT_BY_ITS_OWN}),
        ("nobody", 1): ("here", {Why.NOT_BY_ITS_OWN}),
        ("import", 3): ("sent", {Why.NOT_ALLOWED}),
        ("begun", 3): ("here", {Why.NOT_ALLOWED, Why.NOT_THERE}),
        ("odd", 1): ("here", {Why.NOT_ALLOWED}),
        ("forged", 1): ("here", {Why.NOT_ALLOWED, Why.NOT_BY_ITS_OWN}),
    }


def test_random_histories_against_a_plain_reading(log: Ledger) -> None:
    """Given histories by chance, the one statement finds what a loop over each history finds."""
    chance = random.Random(5)
    first()(log, "A").move("sent")
    second()(log, "B").move("sent")
    states: Sequence[Any] = ("here", "sent", "lost", "found", "odd")
    histories = {
        f"k{nth}": [
            (chance.choice((None, *states)), chance.choice(states), chance.choice((0, 1, 2, 3)))
            for _ in range(chance.randrange(1, 6))
        ]
        for nth in range(300)
    }
    fact = first().streams().MOVED
    log.append_all(
        [
            Append(
                f"checked_parcel/{key}",
                [body_of(fact(from_state=a, to_state=b, definition=c)) for a, b, c in moves],
                ANY,
            )
            for key, moves in histories.items()
        ]
    )
    allowed = {one.number: set(one.defined.pairs) for one in definitions(log, "checked_parcel")}
    for number in (1, 2):
        expected = {}
        for key, moves in histories.items():
            stood: str | None = None
            for version, (old, new, named) in enumerate(moves, 1):
                why = set()
                came = "here" if (old, version, named) == (None, 1, 0) and new != "here" else old
                if (new != "here") if came is None else (came, new) not in allowed[number]:
                    why.add(Why.NOT_ALLOWED)
                if old != (stood or "here") and not (version == 1 and old is None):
                    why.add(Why.NOT_THERE)
                own = allowed.get(named, set())
                if named and (named == 3 or (new != "here") if old is None else (old, new) not in own):
                    why.add(Why.NOT_BY_ITS_OWN)
                if why:
                    expected[key, version] = why
                stood = new
        found = list(illegal(log, "checked_parcel", number))
        assert {(one.key[0], one.version): set(one.why) for one in found} == expected
        kinds = Counter((one.from_state, one.to_state, one.why) for one in found)
        pairs = illegal_pairs(log, "checked_parcel", number)
        assert {(one.from_state, one.to_state, one.why): one.moves for one in pairs} == kinds
        objects = defaultdict(set)
        for one in found:
            objects[one.from_state, one.to_state, one.why].add(one.stream)
        assert all(one.objects == len(objects[one[:3]]) for one in pairs)


def test_many_are_read_as_they_come(log: Ledger, admin_dsn: str) -> None:
    """Given 6,000 moves made by one statement, all are judged; who stops gives the connection back."""
    first()(log, "A").move("sent")
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute(
            "INSERT INTO ledger.events (position, recorded_at, version, stream, topic, data)"
            " SELECT 100 + g, now(), 1 + g % 2, 'checked_parcel/k' || g / 2, 'checked_parcel.moved',"
            "        jsonb_build_object('definition', 1, 'from_state', (ARRAY['here', 'sent'])[1 + g % 2],"
            "                           'to_state', (ARRAY['sent', 'odd'])[1 + g % 2])"
            "   FROM generate_series(0, 5999) g"
        )
        admin.execute("SELECT setval('ledger.positions', 40000)")
    with_all = illegal(log, "checked_parcel")
    assert sum(1 for _ in with_all) == 3_000
    (pair,) = illegal_pairs(log, "checked_parcel")
    assert (pair.moves, pair.objects) == (3_000, 3_000)
    for _ in range(11):  # more than there are connections
        stopped = illegal(log, "checked_parcel")
        assert next(stopped).to_state == "odd"
        stopped.close()


def test_definitions_say_what_changed(log: Ledger) -> None:
    first()(log, "A").move("sent")
    second()(log, "A").move("found")
    one, other = definitions(log, "checked_parcel")
    assert (one.number, other.number) == (1, 2)
    assert one.at < other.at
    assert (one.actor, other.actor) == ("tester", "tester")
    assert one.changed.states_added == ("here", "sent", "lost")
    assert other.changed.lines == [
        "+ state found",
        "- state lost",
        "+ sent → found",
        "- here → lost",
        "- sent → lost",
        "~ sent → here",
    ]
    assert changed(other.defined, other.defined).lines == []
    assert changed(other.defined, one.defined).states_removed == ("found",)
    assert other.position == log.read("machine/checked_parcel")[1].position


def test_what_a_machine_is_known_as(log: Ledger) -> None:
    first()(log, "A").move("lost")
    second()(log, "B").move("sent")
    (known,) = machines(log)
    assert known == machine_info(log, "checked_parcel")
    assert (known.states, known.dropped, known.number) == (("here", "sent", "found"), ("lost",), 2)
    assert machine_info(log, first()).states == ("here", "sent", "lost")
    assert machine_info(log, first()).dropped == ("found",)


def test_what_cannot_be_asked(log: Ledger) -> None:
    with pytest.raises(UnknownMachine, match="no_such"):
        illegal(log, "no_such")
    first()(log, "A").move("sent")
    with pytest.raises(BadInput, match="has no definition 9: the numbers are 1 to 1"):
        illegal(log, "checked_parcel", 9)
    with pytest.raises(BadInput, match="limit"):
        illegal(log, "checked_parcel", limit=-1)
    with pytest.raises(BadInput, match="a class or a name"):
        illegal(log, 7)  # type: ignore[arg-type]
