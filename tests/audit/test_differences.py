"""What differs between two moments of a stream, which events changed it, and who last set each field."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger import Body, Ledger, StreamNotFound
from projections.audit import Change, Moment, blame, changes, diff, path_text
from projections.audit.blame import leaves
from projections.audit.differences import ABSENT
from projections.audit.fold import Members, tree_of
from tests.lamp import LampBroke, LampMade, LampRead, LampSwitchedOn, OpenLamp

LAWS = settings(
    max_examples=int(os.environ.get("LEDGER_TEST_EXAMPLES", "100")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
FEW = settings(LAWS, max_examples=LAWS.max_examples // 3)
_numbers = count(1)

LEAF = st.one_of(st.none(), st.booleans(), st.sampled_from([0, 1, 1.0, 2**70, 0.1, "", "a", "true"]))
KEYS = st.sampled_from(["a", "b", "c.d", "0", ""])
TREE = st.recursive(
    LEAF,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=8,
)
EVENT = st.one_of(
    st.builds(LampMade, watts=st.sampled_from([1.0, 2.0])),
    st.builds(LampSwitchedOn),
    st.builds(LampBroke),
    st.builds(LampRead, value=TREE),
)


def exact(tree: Any) -> str:
    """The tree as text that tells 1 from 1.0 and true, and an absent value from None."""
    return "absent" if tree is ABSENT else json.dumps(tree, sort_keys=True)


def at(tree: Any, path: tuple[str | int, ...]) -> Any:
    """What stands at a path, by trying."""
    for key in path:
        if isinstance(tree, dict if isinstance(key, str) else list):
            try:
                tree = tree[key]  # type: ignore[index]
                continue
            except (KeyError, IndexError):
                pass
        return ABSENT
    return tree


def applied(tree: Any, made: Sequence[Change]) -> Any:
    """The tree after changes; `applied(old, changes(old, new))` is `new`."""
    root = {"": copy.deepcopy(tree)}
    gone: list[tuple[Any, str | int]] = []
    for change in made:
        way: list[Any]
        last: Any
        *way, last = ("", *change.path)
        place: Any = root
        for key in way:
            place = place[key]
        if change.new is ABSENT:
            gone.append((place, last))
        elif isinstance(place, list) and last == len(place):
            place.append(copy.deepcopy(change.new))
        else:
            place[last] = copy.deepcopy(change.new)
    for place, last in reversed(gone):  # from the end of a list
        del place[last]
    return root[""]


@LAWS
@given(TREE, TREE)
def test_changes_applied_to_the_old_give_the_new(old: Any, new: Any) -> None:
    was = copy.deepcopy(old)
    found = changes(old, new)
    assert exact(applied(old, found)) == exact(new)
    assert exact(old) == exact(was), "nothing that was given is changed"
    assert (found == []) == (exact(old) == exact(new))
    for change in found:
        assert exact(at(old, change.path)) == exact(change.old)
        assert exact(at(new, change.path)) == exact(change.new)


def test_changes_are_the_smallest_parts() -> None:
    old = {"a": 1, "b": {"c": [1, 2, 3], "d": "x"}, "e": None}
    new = {"a": 1.0, "b": {"c": [1, 5], "d": "x", "f": {}}, "g": True}
    assert changes(old, new) == [
        Change(("a",), 1, 1.0),
        Change(("b", "c", 1), 2, 5),
        Change(("b", "c", 2), 3, ABSENT),
        Change(("b", "f"), ABSENT, {}),
        Change(("g",), ABSENT, True),
        Change(("e",), None, ABSENT),
    ]
    assert [path_text(c.path) for c in changes(old, new)] == ["a", "b.c[1]", "b.c[2]", "b.f", "g", "e"]
    assert path_text(("a b", 0, "c", "é.")) == '["a b"][0].c["é."]'


def test_a_set_is_one_value() -> None:
    assert tree_of({"s": frozenset({"b", "a"})}) == {"s": Members(["a", "b"])}
    assert changes({"s": Members(["a"])}, {"s": Members(["a", "b"])}) == [Change(("s",), ["a"], ["a", "b"])]
    assert changes({"s": Members(["a"])}, {"s": Members(["a"])}) == []
    assert list(leaves({"s": Members(["a"])})) == [(("s",), ["a"])]


@FEW
@given(data=st.data(), events=st.lists(EVENT, min_size=1, max_size=8))
def test_diff_and_blame_name_the_last_event_that_changed_a_field(
    log: Ledger, data: st.DataObject, events: list[Any]
) -> None:
    """For any history and any two versions of it, looked at from outside, state by state."""
    key = f"law-{next(_numbers)}"
    name = OpenLamp.name_of(key)
    for event in events:
        log.append(name, event)
    trees = [tree_of(log.load(OpenLamp, key, version=v).state) for v in range(len(events) + 1)]
    one, other = (data.draw(st.integers(0, len(events))) for _ in range(2))

    def last(path: tuple[str | int, ...], versions: range) -> int | None:
        changed = [v for v in versions if exact(at(trees[v - 1], path)) != exact(at(trees[v], path))]
        return max(changed, default=None)

    found = diff(log, name, Moment(version=one), Moment(version=other))
    assert found.known
    assert exact(applied(trees[one], [Change(*field[:3]) for field in found.fields])) == exact(trees[other])
    for field in found.fields:
        between = range(min(one, other) + 1, max(one, other) + 1)
        assert field.event.version == last(field.path, between)
    for version, tree in ((one, trees[one]), (other, trees[other])):
        blamed = blame(log, name, Moment(version=version))
        assert [(line.path, exact(line.value)) for line in blamed.lines] == [
            (path, exact(value)) for path, value in leaves(tree)
        ]
        for line in blamed.lines:
            by = None if line.event is None else line.event.version
            assert by == last(line.path, range(1, version + 1))


def test_every_step_in_between_is_told(log: Ledger) -> None:
    log.append("lamp/a", LampMade(watts=40))
    log.append("lamp/a", LampSwitchedOn(), actor="mina")
    log.append("lamp/a", LampRead(value=None), LampBroke(), actor="omar")
    found = diff(log, "lamp/a", Moment(version=1))
    assert [(path_text(f.path), f.old, f.new, f.event.version, f.event.meta.actor) for f in found.fields] == [
        ("status", "made", "broken", 4, "omar"),
        ("read", 0, 1, 3, "omar"),
        ("values[0]", ABSENT, None, 3, "omar"),
    ]
    assert [(step.event.version, [path_text(c.path) for c in step.changes]) for step in found.steps] == [
        (2, ["status"]),
        (3, ["read", "values[0]"]),
        (4, ["status"]),
    ]


def test_backwards_is_the_same_the_other_way_round(log: Ledger) -> None:
    log.append("lamp/a", LampMade(), LampSwitchedOn(), LampRead(value=1))
    there = diff(log, "lamp/a", Moment(version=1), Moment(version=3))
    back = diff(log, "lamp/a", Moment(version=3), Moment(version=1))
    assert sorted(
        (f.path, f.new, f.old, f.event.version) for f in back.fields if f.path != ("values", 0)
    ) == (sorted((f.path, f.old, f.new, f.event.version) for f in there.fields if f.path != ("values", 0)))
    assert (back.before.version, back.after.version) == (3, 1)


def test_a_stream_of_an_unknown_domain_is_what_its_bodies_last_said(log: Ledger) -> None:
    said = ['{"state":"new","owner":"a"}', '{"owner":null}', "[1]", '{"state":"old","owner":null}']
    for body in said:
        log.append("thing/1", Body("thing.said", 1, body), head=False)
    log.append("thing/1", Body("thing.bytes", 1, None, b"\x00"), head=False)
    found = diff(log, "thing/1", Moment(version=0))
    assert not found.known
    assert [(path_text(f.path), f.old, f.new, f.event.version) for f in found.fields] == [
        ("owner", ABSENT, None, 2),
        ("state", ABSENT, "old", 4),
    ]
    lines = blame(log, "thing/1", Moment(version=3)).lines
    assert [(line.path, line.value, line.event and line.event.version) for line in lines] == [
        (("owner",), None, 2),
        (("state",), "new", 1),
    ]


def test_a_stream_that_is_not_there_is_refused(log: Ledger) -> None:
    for ask in (lambda: diff(log, "lamp/none", Moment(version=0)), lambda: blame(log, "lamp/none")):
        with pytest.raises(StreamNotFound):
            ask()
