"""The rule engine (spec 4.5): the order of hooks, invalid and fizzled rules, what rules may do, errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ledger
from ledger.runs import Change, FlowRun, Rule, State, StateType, Transform, Verdict, orchestrate, states
from tests.runs.given_runs import flow_run

RUNNING, COMPLETED, FAILED = StateType.RUNNING, StateType.COMPLETED, StateType.FAILED
Hooks = list[tuple[str, str]]


class Noted(Rule):
    """A rule that notes its hooks."""

    hooks: ClassVar[Hooks] = []

    def before(self, change: Change[Any], initial: State | None, proposed: State) -> None:
        self.hooks.append((self.name, "before"))

    def after(self, change: Change[Any], initial: State | None, validated: State) -> None:
        self.hooks.append((self.name, "after"))

    def cleanup(self, change: Change[Any], initial: State | None, validated: State | None) -> None:
        self.hooks.append((self.name, "cleanup"))


class First(Noted): ...


class Second(Noted): ...


class OnlyFailed(Noted):
    TO_STATES = {FAILED}


class ToFailed(Noted):
    def before(self, change: Change[Any], initial: State | None, proposed: State) -> None:
        super().before(change, initial, proposed)
        change.reject(states.failed(message="instead"), "no success today")


class ToNothing(Noted):
    def before(self, change: Change[Any], initial: State | None, proposed: State) -> None:
        super().before(change, initial, proposed)
        change.reject(None, "stay")


class Waits(Noted):
    def before(self, change: Change[Any], initial: State | None, proposed: State) -> None:
        super().before(change, initial, proposed)
        change.wait(7, "later")


class Aborts(Noted):
    def before(self, change: Change[Any], initial: State | None, proposed: State) -> None:
        super().before(change, initial, proposed)
        change.abort("never")


class Renames(Noted):
    def before(self, change: Change[Any], initial: State | None, proposed: State) -> None:
        super().before(change, initial, proposed)
        change.rename("Perfect")


class Breaks(Noted):
    def before(self, change: Change[Any], initial: State | None, proposed: State) -> None:
        self.hooks.append((self.name, "before"))
        raise ZeroDivisionError("a bug")


class BreaksAfter(Noted):
    def after(self, change: Change[Any], initial: State | None, validated: State) -> None:
        raise ZeroDivisionError("a bug")


class Everywhere(Transform):
    hooks = Noted.hooks

    def before(self, change: Change[Any], initial: State | None, proposed: State) -> None:
        self.hooks.append((self.name, "before"))

    def after(self, change: Change[Any], initial: State | None, validated: State) -> None:
        self.hooks.append((self.name, "after"))


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    Noted.hooks.clear()
    yield
    Noted.hooks.clear()


def run_through(
    log: ledger.Ledger, *policy: type[Rule], given: State | None = None, proposed: State | None = None
) -> Change[FlowRun]:
    """A running run for which COMPLETED is proposed."""
    run = flow_run(given or states.running())
    change = Change(log, run.state, proposed or states.completed())
    orchestrate(change, policy)
    return change


def test_s3_40_hooks_nest(shared: ledger.Ledger) -> None:
    change = run_through(shared, First, Second)
    assert Noted.hooks == [("First", "before"), ("Second", "before"), ("Second", "after"), ("First", "after")]
    assert (change.status, change.proposed) == (Verdict.ACCEPT, change.intended)


def test_s3_41_no_hook_of_an_invalid_rule_runs(shared: ledger.Ledger) -> None:
    run_through(shared, OnlyFailed)
    assert Noted.hooks == []


def test_s3_42_a_rule_fizzles_where_a_later_one_changes_the_types(shared: ledger.Ledger) -> None:
    change = run_through(shared, First, ToFailed, Second)
    assert Noted.hooks == [
        ("First", "before"),
        ("ToFailed", "before"),  # Second is invalid: the types are no longer those that were proposed
        ("ToFailed", "after"),  # does not fizzle by its own decision
        ("First", "cleanup"),
    ]
    assert (change.status, change.rule, change.reason) == (Verdict.REJECT, "ToFailed", "no success today")
    assert change.proposed is not None
    assert (change.proposed.type, change.proposed.message) == (FAILED, "instead")


def test_s3_42_a_rule_for_the_new_types_stays_invalid(shared: ledger.Ledger) -> None:
    run_through(shared, ToFailed, OnlyFailed)
    assert [name for name, _ in Noted.hooks] == ["ToFailed", "ToFailed"]


@pytest.mark.parametrize(
    ("rule", "verdict", "delay"),
    [(ToNothing, Verdict.REJECT, None), (Waits, Verdict.WAIT, 7), (Aborts, Verdict.ABORT, None)],
)
def test_s3_43_nothing_is_written(
    shared: ledger.Ledger, rule: type[Rule], verdict: Verdict, delay: int | None
) -> None:
    change = run_through(shared, First, rule, Second, Everywhere)
    assert (change.status, change.delay_seconds, change.rule) == (verdict, delay, rule.__name__)
    assert change.proposed is None
    assert change.validated == change.initial
    assert change.appends == []
    assert Noted.hooks == [("First", "before"), (rule.__name__, "before"), ("First", "cleanup")]


def test_s3_43_a_rejection_must_name_a_state_where_the_run_has_none(shared: ledger.Ledger) -> None:
    change = Change(shared, flow_run().state, states.running())
    orchestrate(change, [ToNothing])
    assert change.status is Verdict.ABORT
    assert isinstance(change.error, ledger.RuleError)


def test_s3_43_a_new_name_changes_nothing_else(shared: ledger.Ledger) -> None:
    change = run_through(shared, First, Renames, Second)
    assert change.status is Verdict.ACCEPT
    assert change.proposed is not None
    assert (change.proposed.type, change.proposed.name) == (COMPLETED, "Perfect")
    assert [hook for _, hook in Noted.hooks] == ["before"] * 3 + ["after"] * 3


@pytest.mark.parametrize("act", ["reject", "wait", "abort", "detail"])
def test_s3_43_nothing_but_a_name_after_the_state_is_fixed(shared: ledger.Ledger, act: str) -> None:
    class Late(Rule):
        def after(self, change: Change[Any], initial: State | None, validated: State) -> None:
            match act:
                case "reject":
                    change.reject(states.failed(), "too late")
                case "wait":
                    change.wait(1, "too late")
                case "abort":
                    change.abort("too late")
                case _:
                    change.detail(cache_key="too late")

    change = run_through(shared, Late)
    assert isinstance(change.error, ledger.RuleError)
    assert isinstance(change.error, RuntimeError)
    assert (change.status, change.proposed) == (Verdict.ABORT, None)


def test_s3_44_an_error_in_a_rule_aborts(shared: ledger.Ledger) -> None:
    change = run_through(shared, First, Breaks, Second, Everywhere)
    assert (change.status, change.rule, change.proposed) == (Verdict.ABORT, "Breaks", None)
    assert isinstance(change.error, ZeroDivisionError)
    assert "a bug" in (change.reason or "")
    assert Noted.hooks == [
        ("First", "before"),
        ("Breaks", "before"),
        ("Breaks", "cleanup"),
        ("First", "cleanup"),
    ]


def test_s3_46_transforms_are_skipped_after_an_error(shared: ledger.Ledger) -> None:
    change = run_through(shared, Everywhere, BreaksAfter)
    assert change.status is Verdict.ABORT
    assert Noted.hooks == [("Everywhere", "before"), ("BreaksAfter", "before")]


def test_s3_44_what_may_be_repeated_is_raised(shared: ledger.Ledger) -> None:
    class Meets(Rule):
        def before(self, change: Change[Any], initial: State | None, proposed: State) -> None:
            raise ledger.StreamConflict("flow_run/x", "version 1", 2)

    class Offline(Rule):
        def before(self, change: Change[Any], initial: State | None, proposed: State) -> None:
            raise ledger.ServerUnavailable("not now")

    for rule, error in ((Meets, ledger.StreamConflict), (Offline, ledger.ServerUnavailable)):
        with pytest.raises(error):
            run_through(shared, rule)


def test_s3_45_hooks_cannot_change_what_they_are_given(shared: ledger.Ledger) -> None:
    class Meddles(Rule):
        def before(self, change: Change[Any], initial: State | None, proposed: State) -> None:
            for state in (initial, proposed):
                with pytest.raises(AttributeError):
                    state.name = "Mine"  # type: ignore[misc, union-attr]
                with pytest.raises(TypeError):
                    state.state_details["cache_key"] = "mine"  # type: ignore[index, union-attr]
            change.detail(cache_key="said")

    change = run_through(shared, Meddles)
    assert change.status is Verdict.ACCEPT
    assert change.proposed is not None
    assert change.proposed.detail("cache_key") == "said"


def test_what_a_fizzled_rule_wanted_appended_can_be_withdrawn(shared: ledger.Ledger) -> None:
    class Wants(Rule):
        def before(self, change: Change[Any], initial: State | None, proposed: State) -> None:
            change.also(flow_run())

        def cleanup(self, change: Change[Any], initial: State | None, validated: State | None) -> None:
            change.withdraw()

    class WantsToo(Wants):
        def cleanup(self, change: Change[Any], initial: State | None, validated: State | None) -> None: ...

    assert len(run_through(shared, Wants, WantsToo).appends) == 2
    assert len(run_through(shared, Wants, WantsToo, ToFailed).appends) == 1


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.sampled_from([First, Second, OnlyFailed, ToFailed, ToNothing, Waits, Aborts, Renames, Breaks])
    )
)
def test_law_each_hook_has_its_counterpart(policy: list[type[Rule]]) -> None:
    """Whatever rules meet: hooks end in the reverse order in which they began, each with one of the two ends,
    and only a state that stands is followed by an `after`."""
    Noted.hooks.clear()
    change = Change[FlowRun](None, flow_run(states.running()).state, states.completed())  # type: ignore[arg-type]
    orchestrate(change, policy)
    begun = [name for name, hook in Noted.hooks if hook == "before"]
    ended = [name for name, hook in Noted.hooks if hook != "before"]
    decides = {"ToNothing", "Waits", "Aborts"}
    expected = [name for name in reversed(begun) if name not in decides]
    assert ended == expected
    if change.proposed is None:
        assert all(hook == "cleanup" for _, hook in Noted.hooks[len(begun) :])
    assert change.status is Verdict.ACCEPT or change.rule in {*decides, "ToFailed", "Breaks"}
