"""
Flow runs: create, read, move from state to state, change, delete.

    runs = FlowRuns(log)
    run, is_new = runs.create(flow_id, name="nightly", state=pending())
    answer = runs.set_state(run.id, running())

A proposed state is decided and recorded in one append, at the version of the run that was read. Where another
writer came first, it is decided again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from ..domain.frozen import changed
from ..errors import RecordNotFound, RunNotFound, StreamConflict
from ..log.ledger import Ledger
from ..log.retry import retry_conflicts
from .flow_rules import FLOW_POLICY, MARK_LATE_POLICY, MINIMAL_FLOW_POLICY
from .flow_run import (
    FlowRun,
    FlowRunProposalRefused,
    FlowRunStateSet,
    OpenFlowRun,
    RunInput,
)
from .json_values import checked_uuid, new_id
from .names import OpenName
from .orchestration import Answer, Change, Policy, answered, committed, orchestrate, recorded
from .slugs import new_name
from .states import State, late


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
        is a run with this id. fields: further ones of spec 4.2. Raises BadInput, RunNotFound for the id of a
        run that was deleted.
        """
        given = {**fields, "idempotency_key": idempotency_key}
        opened = OpenFlowRun(checked_uuid(id or new_id()))
        opened.create(name or new_name(), flow_id, **given)
        change = None
        if state is not None:
            change = Change(self.ledger, opened.state, state, forced=True)
            orchestrate(change, MINIMAL_FLOW_POLICY)
            recorded(opened, change, FlowRunStateSet, FlowRunProposalRefused)
        if idempotency_key is None:
            try:
                committed(self.ledger, opened, change)
            except StreamConflict:
                return self.get(opened.state.id), False
            return _read(opened), True
        return self._created_once(opened, change, idempotency_key)

    def _created_once(
        self, opened: OpenFlowRun, change: Change[FlowRun] | None, key: str
    ) -> tuple[FlowRun, bool]:
        """Create it under its key, unless the flow has a run of this key."""

        def attempt() -> tuple[FlowRun, bool]:
            name = self.ledger.load(OpenName, "flow_run", opened.state.flow_id, key)
            if name.holder is not None:
                return self.get(name.holder), False
            name.take(opened.state.id)
            committed(self.ledger, opened, change, name)
            return _read(opened), True

        return retry_conflicts(attempt)

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

    def set_state(self, id: str, proposed: State, *, force: bool = False) -> Answer[FlowRun]:
        """Propose a state; the rules decide what becomes of it. force: only the minimal policy applies.

        Raises RunNotFound, BadInput, ServerUnavailable.
        """
        policy = MINIMAL_FLOW_POLICY if force else FLOW_POLICY
        return retry_conflicts(lambda: self._decide(self._open(id), proposed, policy, forced=force))

    def mark_late(self, id: str) -> Answer[FlowRun]:
        """Mark a scheduled run as late, for the same time; rejected where it is not scheduled any more."""

        def attempt() -> Answer[FlowRun]:
            opened = self._open(id)
            at = opened.state.next_scheduled_start_time
            return self._decide(opened, late(at), MARK_LATE_POLICY)

        return retry_conflicts(attempt)

    def _decide(
        self, opened: OpenFlowRun, proposed: State, policy: Policy, *, forced: bool = False
    ) -> Answer[FlowRun]:
        change = Change(self.ledger, opened.state, proposed, forced=forced)
        orchestrate(change, policy)
        if recorded(opened, change, FlowRunStateSet, FlowRunProposalRefused):
            committed(self.ledger, opened, change)
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
        """Delete it; its history stays. Raises RunNotFound."""
        self._changed(id, OpenFlowRun.delete)

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


def _read(opened: OpenFlowRun) -> FlowRun:
    return changed(opened.state, version=opened.version)
