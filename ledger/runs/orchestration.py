"""
The rule engine: a policy decides what becomes of a proposed state (spec 4.5).

    class PreventPendingTransitions(Rule):
        FROM_STATES, TO_STATES = {PENDING, RUNNING}, {PENDING}

        def before(self, change, initial, proposed):
            change.abort("This run is on its way already.")

    FLOW_POLICY = (PreventDuplicateTransitions, PreventPendingTransitions, WaitForScheduledTime)
    orchestrate(change, FLOW_POLICY)

A policy is a tuple of rules. The `before` hooks run in its order, then the state is fixed, then the `after`
or `cleanup` hooks run in the reverse order (S3-40). Nothing is written meanwhile: what the rules want written
(slots of limits, the parent's state) is collected in the Change and goes into one append with the state.

A rule is *invalid* where its types of states do not match, and does nothing (S3-41). It *fizzles* where a
later rule changed the proposal after its `before` hook: then its `cleanup` runs in place of `after` (S3-42).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, ClassVar, Final, Generic, TypeVar

from ..domain.event import Event
from ..domain.frozen import FrozenDict, changed
from ..domain.stream import Stream
from ..errors import BadInput, RuleError, ServerUnavailable, StreamConflict
from ..log.append import Append
from ..log.ledger import Ledger
from .facts import ProposalRefused, StateSet
from .run import Run
from .states import State, StateType

R = TypeVar("R", bound=Run)
_log = logging.getLogger(__name__)

Types = Collection[StateType | None]
ALL: Final = frozenset({*StateType, None})
"""All types of states, and None: no state yet, or nothing to be written."""


class Verdict(StrEnum):
    """What became of a proposal (spec S3-26)."""

    ACCEPT = "ACCEPT"
    REJECT = "REJECT"
    WAIT = "WAIT"
    ABORT = "ABORT"


@dataclass(frozen=True, slots=True)
class Answer(Generic[R]):
    """The answer to a proposed state.

    state: the state in which the run is now. reason, delay_seconds: where it was not accepted. rule: the rule
    that rejected it, delayed it or aborted. written: whether a new state was recorded. run: after it.
    """

    status: Verdict
    state: State | None
    reason: str | None
    delay_seconds: int | None
    rule: str | None
    written: bool
    run: R


class Change(Generic[R]):
    """A proposed state on its way through a policy. Rules read it, and act on it by its methods only.

    run: as it was read; nothing changes it. initial: its state. proposed: the state that will be written;
    None where nothing will be. given: what rules need besides, such as the client's version. validated: the
    state that will be written, once the rules have decided; the run's own where nothing will be. States are
    immutable, so hooks cannot change them behind the engine's back (spec S3-45).
    """

    def __init__(
        self,
        ledger: Ledger,
        run: R,
        proposed: State,
        *,
        forced: bool = False,
        given: Mapping[str, Any] = FrozenDict(),
    ) -> None:
        self.ledger, self.run, self.forced, self.given = ledger, run, forced, given
        self.initial: State | None = run.state
        self.intended = proposed
        self.proposed: State | None = proposed
        self.validated: State | None = None
        self.status = Verdict.ACCEPT
        self.reason: str | None = None
        self.delay_seconds: int | None = None
        self.rule: str | None = None
        self.error: Exception | None = None
        self.changes: dict[str, Any] = {}
        self._also: list[tuple[Rule, Append | Stream[Any, Any]]] = []
        self._facts: list[tuple[Rule, Event]] = []
        self._acting: Rule | None = None
        self._fixed = False

    # What rules may do

    def reject(self, state: State | None, reason: str) -> None:
        """Propose `state` instead; None: leave the run in its state, and write nothing (spec S3-43).

        Raises RuleError for None where the run has no state.
        """
        if state is None and self.initial is None:
            raise RuleError("the run has no state: a rejection must name one")
        self._decide(Verdict.REJECT, state, reason)

    def wait(self, seconds: int, reason: str) -> None:
        """Write nothing; the client shall ask again after so many seconds."""
        self._decide(Verdict.WAIT, None, reason)
        self.delay_seconds = seconds

    def abort(self, reason: str) -> None:
        """Write nothing; the client shall give up."""
        self._decide(Verdict.ABORT, None, reason)

    def rename(self, name: str) -> None:
        """Change the name of the proposed state, and nothing else; no rule becomes invalid by it."""
        if self.proposed is not None and not self._fixed:
            self.proposed = changed(self.proposed, name=name)

    def detail(self, **details: Any) -> None:
        """Change details of the proposed state; None takes one away."""
        if self._fixed:
            raise RuleError("the state is fixed already")
        if self.proposed is not None:
            self.proposed = self.proposed.with_details(**details)

    def drop_data(self) -> None:
        """Propose the state without its data."""
        if self.proposed is not None and not self._fixed:
            self.proposed = changed(self.proposed, data=None)

    def set(self, **fields: Any) -> None:
        """Change fields of the run, with the state: JSON values, which `evolve` reads."""
        self.changes.update(fields)

    def unset(self, *fields: str) -> None:
        """Withdraw changes of fields."""
        for name in fields:
            self.changes.pop(name, None)

    def also(self, *appends: Append | Stream[Any, Any]) -> None:
        """Append these, or the news of these streams, together with the state."""
        assert self._acting is not None
        self._also += [(self._acting, one) for one in appends]

    def record(self, *facts: Event) -> None:
        """Record further facts of the run, after its state."""
        assert self._acting is not None
        self._facts += [(self._acting, one) for one in facts]

    def withdraw(self) -> None:
        """Withdraw what the acting rule wanted appended and recorded."""
        self._also = [(rule, one) for rule, one in self._also if rule is not self._acting]
        self._facts = [(rule, one) for rule, one in self._facts if rule is not self._acting]

    # What the engine does

    @property
    def types(self) -> tuple[StateType | None, StateType | None]:
        """The types of the present state and of the proposed one."""
        return (
            None if self.initial is None else self.initial.type,
            None if self.proposed is None else self.proposed.type,
        )

    @property
    def appends(self) -> list[Append | Stream[Any, Any]]:
        """What is appended with the state; nothing where no state is written."""
        return [] if self.proposed is None else [one for _, one in self._also]

    @property
    def facts(self) -> list[Event]:
        """What is recorded of the run after its state; nothing where no state is written."""
        return [] if self.proposed is None else [one for _, one in self._facts]

    def fix(self) -> None:
        """No rule may change the proposal from now on."""
        self._fixed = True
        self.validated = self.initial if self.proposed is None else self.proposed

    def fail(self, rule: Rule, error: Exception) -> None:
        """A rule raised: nothing is written, and the client gets ABORT with the reason (spec S3-44)."""
        self.error, self.proposed = error, None
        self.status, self.rule, self.delay_seconds = Verdict.ABORT, rule.name, None
        self.reason = f"Orchestration was aborted by an error in rule {rule.name}: {error!r}"

    def _decide(self, status: Verdict, state: State | None, reason: str) -> None:
        if self._fixed:
            raise RuleError("the state is fixed already")
        assert self._acting is not None
        self.status, self.proposed, self.reason = status, state, reason
        self.delay_seconds, self.rule = None, self._acting.name
        self._acting.to_type = None if state is None else state.type  # it does not fizzle by its own decision

    def act(self, rule: Rule) -> None:
        """From now on, `rule` acts."""
        self._acting = rule


class Rule:
    """A rule of a policy. An object serves one proposal, so hooks may keep what they need in attributes.

    FROM_STATES, TO_STATES: the types of states that it governs; None is no state yet.
    """

    FROM_STATES: ClassVar[Types] = ALL
    TO_STATES: ClassVar[Types] = ALL

    def __init__(self, intended: tuple[StateType | None, StateType | None]) -> None:
        self.from_type, self.to_type = intended
        self.is_valid = False

    @property
    def name(self) -> str:
        """Its name, as facts and answers give it."""
        return type(self).__name__

    def before(self, change: Change[Any], initial: State | None, proposed: State) -> None:
        """Decide about the proposal. It is called only where the types of both states match."""

    def after(self, change: Change[Any], initial: State | None, validated: State) -> None:
        """Add what follows from the state that will be written."""

    def cleanup(self, change: Change[Any], initial: State | None, validated: State | None) -> None:
        """Undo what `before` did, because a later rule changed the proposal."""

    def enter(self, change: Change[Any]) -> None:
        """Run `before` if the rule is valid."""
        self.is_valid = (self.from_type, self.to_type) == change.types
        if self.is_valid and change.proposed is not None:
            self.before(change, change.initial, change.proposed)

    def leave(self, change: Change[Any]) -> None:
        """Run `after`, or `cleanup` if the rule fizzled. A rule whose own decision stands does not fizzle."""
        if not self.is_valid:
            return
        if (self.from_type, self.to_type) != change.types:
            self.cleanup(change, change.initial, change.validated)
        elif change.proposed is not None and self.governs(*change.types):
            self.after(change, change.initial, change.proposed)

    @classmethod
    def governs(cls, initial: StateType | None, proposed: StateType | None) -> bool:
        """Whether it governs moves between states of these types."""
        return initial in cls.FROM_STATES and proposed in cls.TO_STATES


class Transform(Rule):
    """A rule that is part of every move that writes a state, whatever the other rules make of it (S3-46)."""

    def enter(self, change: Change[Any]) -> None:
        if change.proposed is not None:
            self.before(change, change.initial, change.proposed)

    def leave(self, change: Change[Any]) -> None:
        if change.proposed is not None and change.error is None:
            self.after(change, change.initial, change.proposed)


Policy = Sequence[type[Rule]]


def orchestrate(change: Change[Any], policy: Policy) -> None:
    """Let the rules of a policy decide about a proposal.

    Raises StreamConflict and ServerUnavailable, which the caller may repeat; other errors become an ABORT.
    """
    rules = [kind(change.types) for kind in _governing(tuple(policy), *change.types)]
    for rule in rules:
        _run(change, rule, rule.enter)
    change.fix()
    for rule in reversed(rules):
        _run(change, rule, rule.leave)
    change.fix()


def recorded(
    opened: Stream[Any, Any],
    change: Change[Any],
    state_set: type[StateSet],
    refused: type[ProposalRefused],
) -> bool:
    """Record on the open run what became of the proposal; returns whether there is anything to append."""
    asked, state = change.intended, change.proposed
    common: dict[str, Any] = {name: getattr(change, name) for name in ("rule", "reason", "forced")}
    common["initial"] = None if change.initial is None else named(change.initial)
    common["transition_id"] = asked.detail("transition_id")
    if state is not None:
        common["proposed"] = named(asked) if change.status is Verdict.REJECT else None
        common |= {"status": state.type.lower(), "state": state.recorded(), "changes": change.changes}
        facts: list[Event] = [state_set(**common), *change.facts]
    elif _is_repeated(change):
        facts = []
    else:
        common |= {"verdict": change.status, "delay_seconds": change.delay_seconds}
        facts = [refused(**common, proposed=asked.recorded())]
    for fact in facts:
        opened.record(fact)
    return bool(facts)


def _is_repeated(change: Change[Any]) -> bool:
    """Whether a refusal says nothing new, and is not recorded.

    It is the repeat of a transition that was made or refused before, or a WAIT by a rule that has let the
    present state wait before: clients that wait ask again and again.
    """
    run, transition = change.run, change.intended.detail("transition_id")
    if transition is not None and transition in (*run.transitions, *run.refused_transitions):
        return True
    return change.status is Verdict.WAIT and change.rule in run.waits


def committed(
    ledger: Ledger, opened: Stream[Any, Any], change: Change[Any] | None, *also: Stream[Any, Any]
) -> None:
    """Append the news of a run, of further streams, and what the rules wanted: all or nothing."""
    wanted = [*also, *(() if change is None else change.appends)]
    streams = [one for one in wanted if isinstance(one, Stream)]
    ledger.commit(opened, *streams, checks=[one for one in wanted if not isinstance(one, Stream)])


def answered(change: Change[R], run: R) -> Answer[R]:
    """The answer to the proposal. run: as it is after the append."""
    written = change.proposed is not None
    return Answer(change.status, run.state, change.reason, change.delay_seconds, change.rule, written, run)


def unstorable(run: R, error: BadInput) -> Answer[R]:
    """The answer to a proposal that can never be recorded, such as a text with NUL (spec S3-44)."""
    return Answer(Verdict.ABORT, run.state, f"The state cannot be recorded: {error}", None, None, False, run)


def named(state: State) -> dict[str, Any]:
    """A state as facts name one that is recorded elsewhere."""
    return {"id": state.id, "type": state.type.value, "name": state.name}


@lru_cache(2048)
def _governing(
    policy: tuple[type[Rule], ...], initial: StateType | None, proposed: StateType | None
) -> tuple[type[Rule], ...]:
    """The rules of a policy that govern a move between states of these types; the others are invalid."""
    return tuple(kind for kind in policy if kind.governs(initial, proposed))


def _run(change: Change[Any], rule: Rule, hook: Callable[[Change[Any]], None]) -> None:
    change.act(rule)
    try:
        hook(change)
    except (StreamConflict, ServerUnavailable):
        raise
    except Exception as error:
        _log.exception("rule %s failed", rule.name)
        change.fail(rule, error)
