"""
Flow runs: create, read, move from state to state, change, delete.

    runs = FlowRuns(log)
    run, is_new = runs.create(flow_id, name="nightly", state=pending())
    answer = runs.set_state(run.id, running())

A proposed state is decided and recorded in one append, at the version of the run that was read. Where another
writer came first, it is decided again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from ..domain.frozen import FrozenDict, changed
from ..domain.stream import Stream
from ..errors import BadInput, RecordNotFound, RunNotFound, StreamConflict
from ..log.append import Append
from ..log.ledger import Ledger
from ..log.retry import retry_conflicts
from .deletion import delete_task_runs
from .deployment_slots import appends_to_give_back
from .flow_rules import FLOW_POLICY, MARK_LATE_POLICY, MINIMAL_FLOW_POLICY, RESUME_POLICY
from .flow_run import FlowRun, FlowRunProposalRefused, FlowRunStateSet, OpenFlowRun, RunInput
from .json_values import checked_uuid, new_id
from .names import OpenName
from .orchestration import Answer, Change, Policy, answered, committed, orchestrate, recorded, unstorable
from .records import open_class
from .run_rules import LEASE
from .slugs import new_name
from .states import State, late, resuming, running

ATTEMPTS: Final = 30
"""How often a proposal is decided anew: many runs may move a slot of the same limit at the same time."""


class FlowRuns:
    """The flow runs of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def create(
        self,
        flow_id: str,
        *,
        id: str | None = None,
        state: State | None = None,
        idempotency_key: str | None = None,
        name: str | None = None,
        **fields: Any,
    ) -> tuple[FlowRun, bool]:
        """Create a run, in a state if one is given; returns it, and whether it is new.

        idempotency_key: a second run of the flow with the same key is not created, the first is returned. So
        is a run with this id. Its labels are added to those of its flow. fields: further ones of spec 4.2.
        Raises BadInput, RunNotFound for the id of a run that was deleted.
        """
        id = checked_uuid(id or new_id())
        names = [] if idempotency_key is None else [_key_of(flow_id, idempotency_key)]
        given = {**fields, "flow_id": flow_id, "name": name or new_name(), "idempotency_key": idempotency_key}
        given["labels"] = self._labels(checked_uuid(flow_id), fields.get("labels") or {})
        try:  # mostly it is new: nothing is read before
            return self._create(id, given, state, names), True
        except StreamConflict:
            return retry_conflicts(lambda: self._create_unless(id, given, state, names))

    def _labels(self, flow_id: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """The labels of a new run: those of its flow, the flow's id, and those that are given."""
        flow = self.ledger.load(open_class("flow"), flow_id)
        of_flow = flow.state.fields.get("labels") if flow.is_present else None
        return {**(of_flow or {}), "prefect.flow.id": flow_id, **given}

    def _create_unless(
        self, id: str, given: dict[str, Any], state: State | None, names: Sequence[OpenName]
    ) -> tuple[FlowRun, bool]:
        """Create it, unless a run has its id or its key: then that one."""
        held = [self.ledger.load(OpenName, *name.key) for name in names]
        for holder in (id, *(name.holder for name in held)):
            found = None if holder is None else self.ledger.load(OpenFlowRun, holder)
            if found is not None and found.version:
                return self.get(found.state.id), False
        return self._create(id, given, state, held), True

    def create_missing(
        self, wanted: Sequence[Mapping[str, Any]], checks: Sequence[Append] = ()
    ) -> list[FlowRun]:
        """Create those of these runs whose keys have no run yet, all or none; returns these.

        wanted: of each, what `create` takes, with idempotency_key and state. checks: expectations of other
        streams that must hold. Raises StreamConflict where another writer came first, BadInput.
        """
        keys = [_key_of(one["flow_id"], one["idempotency_key"]) for one in wanted]
        names = {name.name: name for name in self.ledger.load_each(keys)} if keys else {}
        made = []
        for key, one in zip(keys, wanted, strict=True):
            if names[key.name].holder is None:
                given = {**one, "name": one.get("name") or new_name()}
                made.append(self._made(new_id(), given, given.pop("state"), [names[key.name]]))
        also = [stream for opened, change in made for stream in (opened, *(change.appends if change else ()))]
        streams = [one for one in also if isinstance(one, Stream)]
        appends = [one for one in also if isinstance(one, Append)]
        self.ledger.commit(*streams, *names.values(), checks=[*appends, *checks])
        return [_read(opened) for opened, _ in made]

    def _create(
        self, id: str, given: dict[str, Any], state: State | None, names: Sequence[OpenName]
    ) -> FlowRun:
        opened, change = self._made(id, given, state, names)
        committed(self.ledger, opened, change, *names)
        return _read(opened)

    def _made(
        self, id: str, given: Mapping[str, Any], state: State | None, names: Sequence[OpenName]
    ) -> tuple[OpenFlowRun, Change[FlowRun] | None]:
        """A new run in its state, with its names taken; nothing is appended yet."""
        opened = OpenFlowRun(id)
        opened.create(**given)
        for name in names:
            name.take(id)
        if state is None:
            return opened, None
        change = Change(self.ledger, opened.state, state, forced=True)
        orchestrate(change, MINIMAL_FLOW_POLICY)
        recorded(opened, change, FlowRunStateSet, FlowRunProposalRefused)
        return opened, change

    def get(self, id: str) -> FlowRun:
        """The run as it is now. Raises RunNotFound."""
        return _read(self._open(id))

    def states(self, id: str) -> list[State]:
        """All states that it was in, the oldest first. Raises RunNotFound."""
        self._open(id)
        events = self.ledger.read(OpenFlowRun.name_of(checked_uuid(id)))
        found = [(one.event, one.recorded_at) for one in events]
        return [State.of(event.state, at) for event, at in found if isinstance(event, FlowRunStateSet)]

    # States

    def set_state(
        self,
        id: str,
        proposed: State,
        *,
        force: bool = False,
        client_version: str | None = None,
        expected: int | None = None,
    ) -> Answer[FlowRun]:
        """Propose a state; the rules decide what becomes of it. force: only the minimal policy applies.

        client_version: of Prefect; it tells whether the client renews leases of slots. expected: the version
        of the run at which the proposal was made; at another one StreamConflict is raised.
        Raises RunNotFound, ServerUnavailable.
        """
        policy = MINIMAL_FLOW_POLICY if force else FLOW_POLICY
        given = {"client_version": client_version}
        return self._decided(id, lambda _: proposed, policy, given=given, forced=force, expected=expected)

    def mark_late(self, id: str) -> Answer[FlowRun]:
        """Mark a scheduled run as late, for the same time; rejected where it is not scheduled any more."""
        return self._decided(id, lambda run: late(run.next_scheduled_start_time), MARK_LATE_POLICY)

    def resume(
        self, id: str, run_input: Mapping[str, Any] | None = None, *, client_version: str | None = None
    ) -> Answer[FlowRun]:
        """Resume a paused run: it runs on, or it is scheduled where its process has ended.

        run_input: values for the input that the run asked for when it paused; they are kept under the key
        that it reads. Raises RunNotFound, BadInput.
        """

        def go_on(run: FlowRun) -> State:
            suspended = run.state is not None and run.state.detail("pause_reschedule")
            return resuming() if suspended else running()

        given = {"run_input": run_input, "client_version": client_version}
        return self._decided(id, go_on, RESUME_POLICY, given=given)

    def _decided(
        self,
        id: str,
        proposal: Callable[[FlowRun], State],
        policy: Policy,
        *,
        given: Mapping[str, Any] = FrozenDict(),
        forced: bool = False,
        expected: int | None = None,
    ) -> Answer[FlowRun]:
        """Read the run, let the policy decide about a proposal, record it; again after a conflict."""

        def attempt() -> Answer[FlowRun]:
            opened = self._open(id)
            if expected is not None and opened.version != expected:
                raise StreamConflict(opened.name, f"version {expected}", opened.version)
            change = Change(self.ledger, opened.state, proposal(opened.state), forced=forced, given=given)
            return self._decide(opened, change, policy)

        return attempt() if expected is not None else retry_conflicts(attempt, attempts=ATTEMPTS)

    def _decide(self, opened: OpenFlowRun, change: Change[FlowRun], policy: Policy) -> Answer[FlowRun]:
        before = _read(opened)
        orchestrate(change, policy)
        if recorded(opened, change, FlowRunStateSet, FlowRunProposalRefused):
            try:
                committed(self.ledger, opened, change)
            except BadInput as error:
                return unstorable(before, error)
        return answered(change, _read(opened))

    # Fields and inputs

    def change(self, id: str, **fields: Any) -> FlowRun:
        """Change some of its fields; labels are added to those it has. Raises RunNotFound, BadInput."""

        def changes(opened: OpenFlowRun) -> None:
            given = dict(fields)
            if given.get("labels") is not None:
                given["labels"] = {**opened.state.labels, **given["labels"]}
            opened.change(**given)

        return self._changed(id, changes)

    def delete(self, id: str) -> None:
        """Delete it with its task runs; their histories stay. Its key and its slot are free again.

        Raises RunNotFound.
        """

        def attempt() -> None:
            opened = self._open(id)
            run = opened.state
            opened.delete()
            names = []
            if run.idempotency_key is not None:
                names = [self.ledger.load(OpenName, *_key_of(run.flow_id, run.idempotency_key).key)]
                names = [name for name in names if name.holder == run.id]
            for name in names:
                name.free()
            lease = None if run.state is None else run.state.detail(LEASE)
            slots = [] if lease is None else appends_to_give_back(self.ledger, lease)
            self.ledger.commit(opened, *names, checks=slots)

        self._open(id)
        delete_task_runs(self.ledger, checked_uuid(id))
        retry_conflicts(attempt)

    def set_input(self, id: str, key: str, value: str, sender: str | None = None) -> None:
        """Give it an input. Raises RunNotFound, RecordExists where the key has an input."""
        self._changed(id, lambda opened: opened.set_input(key, value, sender))

    def get_input(self, id: str, key: str) -> RunInput:
        """Its input under a key. Raises RunNotFound, RecordNotFound."""
        found = next((one for one in self.get(id).inputs if one.key == key), None)
        if found is None:
            raise RecordNotFound("flow run input", key)
        return found

    def delete_input(self, id: str, key: str) -> None:
        """Delete an input. Raises RunNotFound, RecordNotFound."""
        self._changed(id, lambda opened: opened.delete_input(key))

    def inputs(
        self, id: str, prefix: str = "", *, limit: int = 200, exclude: Collection[str] = ()
    ) -> list[RunInput]:
        """Its inputs whose keys begin with a prefix, the oldest first. Raises RunNotFound."""
        found = self.get(id).inputs
        return [one for one in found if one.key.startswith(prefix) and one.key not in exclude][:limit]

    def _changed(self, id: str, change: Callable[[OpenFlowRun], Any]) -> FlowRun:
        def attempt() -> FlowRun:
            opened = self._open(id)
            change(opened)
            self.ledger.commit(opened)
            return _read(opened)

        return retry_conflicts(attempt)

    def _open(self, id: str) -> OpenFlowRun:
        opened = self.ledger.load(OpenFlowRun, checked_uuid(id))
        if not opened.is_there:
            raise RunNotFound("flow run", id)
        return opened


def _key_of(flow_id: str, key: str) -> OpenName:
    """The name that makes a run the only one of a flow with its key."""
    return OpenName("flow_run", checked_uuid(flow_id), key)


def _read(opened: OpenFlowRun) -> FlowRun:
    return changed(opened.state, version=opened.version)
