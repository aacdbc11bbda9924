"""The weaknesses of a history that is looked at later (spec W2-11 to W2-15)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg
import pytest

from ledger import GuardRefused, InvalidState, Ledger, TransitionFailed
from ledger.machines import From, Machine, State, backends
from ledger.machines.definition_stream import DefinitionState, MachineDefinition

Connection = psycopg.Connection[Any]


class Case(Machine, name="old_case"):
    """open → held → closed, and back."""

    OPEN = State("open", initial=True)
    HELD = State("held")
    CLOSED = State("closed")
    table = (From(OPEN).To(HELD, CLOSED), From(HELD).To(OPEN, CLOSED), From(CLOSED).To(OPEN))


def test_w2_11_the_last_move_to_a_state_is_found_without_the_history(
    shared: Ledger, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(shared, key)
    for state in ("held", "open", "held", "closed"):
        case.move(state)
    monkeypatch.delattr(backends._Recorded, "_rows")
    with pytest.raises(AttributeError):
        case.history()
    found = [case.last_transition_to(state) for state in Case.states]
    assert [one and one.number for one in found] == [2, 3, 4]


def test_w2_11_forgetting_what_is_remembered_forgets_no_history(place: Any, key: str) -> None:
    case = Case(place, key)
    case.move("held")
    case.reset()
    assert (case.current_state(), len(case.history())) == ("held", 1)


def test_w2_12_the_beginning_comes_from_nothing(shared: Ledger, key: str) -> None:
    case = Case(shared, key, initial_transition=True)
    last = case.last_transition()
    assert last is not None
    assert last.from_state is None
    (row,) = shared.read(case.stream)
    assert row.data is not None
    assert '"from_state":null' in row.data.replace(" ", "")


def test_w2_12_a_transaction_that_was_rolled_back_leaves_nothing_behind(
    shared: Ledger, user: Connection, key: str
) -> None:
    with shared.transaction(user) as joined:
        case = Case(joined, key)
        case.move("held")
        assert case.current_state() == "held"
        raise psycopg.Rollback
    with shared.transaction(user) as joined:
        assert Case(joined, key).current_state() == "open"
    assert Case(shared, key).history() == []


def test_w2_13_an_unknown_state_is_no_empty_answer(place: Any, key: str) -> None:
    case = Case(place, key)
    for odd in ("Open", "gone", "", None, 5, b"open", ["open", "gone"]):
        with pytest.raises(InvalidState, match=r"^Invalid state"):
            case.in_state("open", odd)


def test_w2_14_without_its_initial_state_a_machine_has_none() -> None:
    class Headless(Case, name="headless"):
        pass

    Headless.remove_state("open")
    assert (Headless.initial_state, Headless.states) == (None, ("held", "closed"))
    assert (Headless(None, 1).current_state(), Headless(None, 1).allowed_transitions()) == (None, ())
    Headless.state("held", initial=True)
    assert Headless(None, 1).current_state() == "held"


# W2-15: definitions are recorded


def definition_of(log: Ledger, name: str) -> DefinitionState:
    return log.load(MachineDefinition, name).state


def test_w2_15_a_move_names_the_definition_that_allowed_it(log: Ledger) -> None:
    class Versioned(Machine, name="versioned"):
        A = State("a", initial=True)
        B = State("b")
        C = State("c")
        table = (From(A).To(B), From(B).To(A, C))

    old = Versioned
    assert Versioned(log, 1).move("b").definition == 1
    assert (Versioned(log, 2).move("b").definition, len(log.read("machine/versioned"))) == (1, 1)

    class Versioned(Machine, name="versioned"):  # type: ignore[no-redef]
        A = State("a", initial=True)
        C = State("c")
        table = (From(A).To(C), From(C).To(A))

    assert Versioned(log, 3).move("c").definition == 2
    now = definition_of(log, "versioned")
    assert (now.number, now.states, now.pairs) == (2, ("a", "c"), [("a", "c"), ("c", "a")])
    first = log.load(MachineDefinition, "versioned", version=1).state
    assert (first.number, first.states) == (1, ("a", "b", "c"))

    dropped = Versioned(log, 1)
    assert [(one.to_state, one.definition) for one in dropped.history()] == [("b", 1)]
    assert (dropped.current_state(), dropped.allowed_transitions()) == ("b", ())
    with pytest.raises(TransitionFailed, match="from 'b' to 'c'"):
        dropped.move("c")
    assert old(log, 1).move("c").definition == 1, "the same process goes on under the number that it has"
    assert [one.definition for one in Versioned(log, 1).history()] == [1, 1]


def test_w2_15_the_same_definition_is_recorded_once(log: Ledger, dsn: str) -> None:
    import ledger

    def same() -> type[Machine]:
        class Steady(Case, name="steady"):
            pass

        return Steady

    assert same()(log, 1).move("held").definition == 1
    assert same()(log, 2).move("held").definition == 1
    with ledger.connect(dsn) as another:
        assert same()(another, 3).move("held").definition == 1
    assert len(log.read("machine/steady")) == 1


SOURCE = """
from ledger.machines import From, Machine, State, guard

class Rule(Machine, name="rule"):
    A = State("a", initial=True)
    B = State("b")
    table = (From(A).To(B), From(B).To(A))

    @guard(to=B)
    def enough(about, last, metadata):
        return metadata.get("sum", 0) > {limit}
"""


def imported(file: Path, limit: int) -> type[Machine]:
    """The machine in a module as a process finds it that starts now."""
    file.write_text(SOURCE.format(limit=limit))
    module = ModuleType(file.stem)
    exec(compile(file.read_text(), str(file), "exec"), vars(module))
    made: type[Machine] = module.Rule
    return made


def test_w2_15_a_changed_guard_is_another_definition(log: Ledger, tmp_path: Path) -> None:
    first = imported(tmp_path / "one.py", 5)
    assert first(log, 1).move("b", sum=6).definition == 1
    second = imported(tmp_path / "two.py", 10)
    assert second(log, 2).move("b", sum=11).definition == 2
    again = imported(tmp_path / "three.py", 10)
    assert again(log, 3).move("b", sum=11).definition == 2
    with pytest.raises(GuardRefused, match=r"enough \(.*two\.py:\d+\)"):
        second(log, 4).move("b", sum=6)
    codes = [row["code"] for number in (1, 2) for row in callbacks(log, number)]
    assert len(set(codes)) == 2
    assert Case(log, 1).move("held").definition == 1


def callbacks(log: Ledger, number: int) -> Any:
    return log.load(MachineDefinition, "rule", version=number).state.callbacks


def test_w2_15_a_source_that_was_changed_since_it_was_imported_stops_nothing(
    log: Ledger, tmp_path: Path
) -> None:
    rule = imported(tmp_path / "rule.py", 5)
    (tmp_path / "rule.py").write_text('"""' + "\n(" * 40)
    assert rule(log, 1).move("b", sum=6).definition == 1


def sums(*said: Any) -> bool:
    return bool(said[-1]["sum"])


def test_w2_15_what_is_asked_need_not_be_a_function(log: Ledger) -> None:
    class Limit:
        """Equal to others, and so without a hash."""

        def __init__(self, limit: int) -> None:
            self.limit = limit

        def __eq__(self, other: object) -> bool:
            return True

        def __call__(self, about: Any, last: Any, metadata: Any) -> bool:
            return bool(metadata["sum"] > self.limit)

    class Limited(Case, name="limited"):
        pass

    Limited.guard_transition(to="held")(Limit(5))
    with pytest.raises(GuardRefused, match="returned false: Limit"):
        Limited(log, 1).move("held", sum=5)
    assert Limited(log, 1).move("held", sum=6).definition == 1
    Limited.guard_transition(to="closed")(partial(partial(sums, 5), 1))
    assert Limited(log, 1).move("closed", sum=6).definition == 2


def test_w2_15_two_machines_of_two_ledgers_are_numbered_apart(log: Ledger, shared: Ledger) -> None:
    class Apart(Case, name="apart"):
        pass

    assert Apart(log, 1).move("held").definition == 1
    Apart.state("late")
    assert Apart(shared, 1).move("held").definition == 1
    assert Apart(log, 2).move("held").definition == 2
    assert (definition_of(log, "apart").number, definition_of(shared, "apart").number) == (2, 1)
