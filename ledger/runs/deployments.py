"""
Deployments: what runs of a flow are made from, with its schedules inside.

    deployments = Deployments(log)
    deployment, is_new = deployments.upsert({"name": "nightly", "flow_id": flow.id, "schedules": […]})
    run, _ = deployments.create_flow_run(deployment.id, parameters={"day": "2026-05-01"})

A change deletes the runs that its schedules made and whose time has not come, in the same append: the
scheduler makes them anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, Final

from ..domain.stream import Stream
from ..errors import BadParameters, BadRecord, RecordExists
from ..log.ledger import Ledger
from ..log.retry import retry_conflicts
from . import deployment_schedules as schedules_of
from .flow_run import FlowRun
from .flow_runs import FlowRuns
from .json_values import checked_uuid, kept, new_id, plain, time_text
from .kinds import DeploymentStatus
from .leases import LeaseKind, RunLeases
from .limits import Limits
from .names import OpenName
from .parameters import checked_parameters, filled_in, variable_value
from .records import OpenRecord, Record, Records
from .scheduled_runs import Nominate, Which, deleted_runs
from .states import State, scheduled
from .work_pools import POLLED, WorkPools

AGENT_POOL: Final = "default-agent-pool"
"""The pool of queues that are named without a pool."""
_RUN_FIELDS: Final = (
    "flow_id", "work_pool_id", "work_pool_name", "work_queue_id", "work_queue_name",
    "infrastructure_document_id",
)  # fmt: skip
"""What a run takes from its deployment as it is."""


class Deployments:
    """The deployments of a ledger. nominate: finds the runs of one that is deleted."""

    def __init__(self, ledger: Ledger, *, nominate: Nominate | None = None) -> None:
        self._nominate = nominate
        self.ledger, self.records, self.pools = ledger, Records(ledger), WorkPools(ledger)
        self.flow_runs, self.leases = FlowRuns(ledger), RunLeases(ledger)

    # Read

    def get(self, id: str) -> Record:
        """The deployment of this id. Raises RecordNotFound."""
        return self.records.get("deployment", id)

    def named(self, flow_name: str, name: str) -> Record:
        """The deployment of this name of a flow. Raises RecordNotFound."""
        return self.records.named("deployment", self.records.named("flow", flow_name).id, name)

    def shown(self, *deployments: Record) -> list[dict[str, Any]]:
        """Their JSON as Prefect's clients read it, with the limits and the times of the last polls."""
        limits = self._limits([one["concurrency_limit_id"] for one in deployments])
        if len(deployments) == 1:
            lease = self.leases.get(LeaseKind.DEPLOYMENT, deployments[0].id)
            leases = [] if lease is None else [lease]
        else:
            leases = self.leases.all(LeaseKind.DEPLOYMENT)
        polled = {one.key: time_text(one.renewed_at) for one in leases}
        found = []
        for one in deployments:
            shown = one.shown()
            del shown["work_pool_id"], shown["version_info"]
            shown["global_concurrency_limit"] = limits.get(shown.pop("concurrency_limit_id"))
            shown["concurrency_limit"] = None  # Prefect shows it only inside the global limit
            shown["last_polled"] = polled.get(one.id, shown["last_polled"])
            found.append(shown)
        return found

    def _limits(self, ids: Iterable[str | None]) -> dict[str | None, dict[str, Any]]:
        wanted = {id for id in ids if id is not None}
        if not wanted:
            return {}
        opened = Limits(self.ledger).opened(ids=wanted)
        return {limit.id: limit.listed_at(opened.now) for limit in opened}

    # Change

    def upsert(self, fields: Mapping[str, Any], *, id: str | None = None) -> tuple[Record, bool]:
        """Create the deployment of this flow and name, or change it; True if it is new.

        fields: those of its kind; `schedules` without ids, which replace all that it has; work_pool_name and
        work_queue_name, the queue is made where it is missing; concurrency_limit, which makes a limit of its
        own, or global_concurrency_limit_id. Raises BadRecord, BadParameters, RecordNotFound for the flow, the
        pool or the limit.
        """
        flow = self.records.get("flow", checked_uuid(fields.get("flow_id")))
        given = {"labels": self._labels(flow, fields), **self._resolved(fields)}
        given |= {key: value for key, value in fields.items() if key not in (*_HANDLED, "labels")}
        wanted = id or new_id()

        def attempt() -> tuple[Record, bool]:
            name = self.records.names.open("deployment", flow.id, str(fields.get("name")))
            if name.holder is not None:
                return self._changed(name.holder, fields, given, schedules_of.replaced), False
            name.take(wanted)
            return self._created(wanted, name, fields, given), True

        return retry_conflicts(attempt)

    def change(self, id: str, fields: Mapping[str, Any]) -> Record:
        """Change some fields; `schedules` as a PATCH of Prefect means them (`deployment_schedules.patched`).

        Raises BadRecord, BadParameters, RecordNotFound.
        """
        resolved = self._resolved(fields)
        given = resolved | {key: value for key, value in fields.items() if key not in _HANDLED}
        return retry_conflicts(lambda: self._changed(id, fields, given, schedules_of.patched))

    def pause(self, id: str) -> Record:
        """Stop making runs, and delete those that its schedules made. Raises RecordNotFound."""
        return self._decided(id, lambda one: one.change({"paused": True}), Which.MADE_BY_SCHEDULES)

    def resume(self, id: str) -> Record:
        """Make runs again. Raises RecordNotFound."""
        return self._decided(id, lambda one: one.change({"paused": False}), None)

    def delete(self, id: str) -> None:
        """Delete it, its own concurrency limit, and its runs that have not begun. Raises RecordNotFound."""

        def attempt() -> None:
            opened = self._open(id)
            before = opened.shown()
            streams = [*self._freed(opened), *self._own_limit(opened, None)]
            runs = deleted_runs(self.ledger, before, Which.ALL, self.leases.clock(), self._nominate)
            self.ledger.commit(*streams, *runs)

        retry_conflicts(attempt)

    def delete_flow(self, flow_id: str) -> None:
        """Delete a flow and its deployments. Its runs stay, those that have not begun excepted.

        Raises RecordNotFound.
        """
        for deployment in self.records.below("deployment", self.records.get("flow", flow_id).id):
            self.delete(deployment.id)
        self.records.delete("flow", flow_id)

    # Schedules

    def add_schedules(self, id: str, given: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Add schedules; returns these. Raises BadRecord, RecordNotFound."""
        wanted = list(given)
        known = {one["id"] for one in self.get(id)["schedules"]}
        after = self._scheduled(id, lambda before: schedules_of.added(before, wanted))
        return [plain(one) for one in after["schedules"] if one["id"] not in known]

    def change_schedule(self, id: str, schedule_id: str, fields: Mapping[str, Any]) -> Record:
        """Change a schedule. Raises BadRecord, RecordNotFound."""
        return self._scheduled(id, lambda before: schedules_of.changed_one(before, schedule_id, fields))

    def delete_schedule(self, id: str, schedule_id: str) -> Record:
        """Delete a schedule. Raises RecordNotFound."""
        return self._scheduled(id, lambda before: schedules_of.removed(before, schedule_id))

    def _scheduled(self, id: str, decide: Callable[[list[Any]], list[Any]]) -> Record:
        def change(opened: OpenRecord) -> None:
            after = decide(plain(opened.state.fields["schedules"]))
            opened.change({"schedules": [{**one, "deployment_id": opened.id} for one in after]})

        return self._decided(id, change, Which.FUTURE)

    # Runs

    def create_flow_run(
        self,
        id: str,
        *,
        parameters: Mapping[str, Any] | None = None,
        enforce_parameter_schema: bool | None = None,
        tags: Iterable[str] = (),
        labels: Mapping[str, Any] | None = None,
        work_queue_name: str | None = None,
        state: State | None = None,
        **fields: Any,
    ) -> tuple[FlowRun, bool]:
        """Create a run of it, scheduled for now unless a state is given; False if the key had a run.

        parameters: instead of those of the deployment. tags, labels: added to them. fields: of a flow run.
        Raises RecordNotFound, BadParameters, BadInput.
        """
        deployment = self.get(id)
        given = self.run_fields(deployment, labels=labels)
        given["parameters"] = self._filled({**given["parameters"], **kept(parameters or {})})
        enforced = deployment["enforce_parameter_schema"]
        if enforced if enforce_parameter_schema is None else enforce_parameter_schema:
            checked_parameters(given["parameters"], plain(deployment["parameter_openapi_schema"]))
        self._check_variables(deployment["work_pool_name"], fields.get("job_variables"))
        given["tags"] = list(dict.fromkeys([*given["tags"], *tags]))
        if work_queue_name is not None:
            given |= self._queue(deployment, work_queue_name)
        given |= {key: value for key, value in fields.items() if value is not None}
        return self.flow_runs.create(given.pop("flow_id"), state=state or scheduled(), **given)

    def _queue(self, deployment: Record, name: str) -> dict[str, Any]:
        if deployment["work_pool_name"] is None:
            raise BadParameters("work_queue_name", ["the deployment has no work pool: leave it out"])
        queue = self.pools.queue_of(deployment["work_pool_name"], name)
        return {"work_queue_id": queue.id, "work_queue_name": queue["name"]}

    def run_fields(
        self,
        deployment: Record,
        schedule: Mapping[str, Any] | None = None,
        labels: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The fields that a run takes from its deployment, and from the schedule that makes it."""
        own = {"prefect.flow.id": deployment["flow_id"], "prefect.deployment.id": deployment.id}
        given = {key: plain(deployment[key]) for key in _RUN_FIELDS}
        given |= {"deployment_id": deployment.id, "deployment_version": deployment["version"]}
        given |= {"labels": {**plain(deployment["labels"] or {}), **own, **(labels or {})}}
        given |= {"tags": list(deployment["tags"]), "parameters": plain(deployment["parameters"])}
        if schedule is not None:
            kind = next((key for key in ("interval", "cron", "rrule") if schedule["schedule"].get(key)), "")
            name = schedule["slug"] or {"cron": "CronSchedule", "rrule": "RRuleSchedule"}.get(
                kind, "IntervalSchedule"
            )
            given["parameters"] |= plain(schedule["parameters"])
            given["tags"] = ["auto-scheduled", *given["tags"]]
            given["created_by"] = {"id": schedule["id"], "type": "SCHEDULE", "display_value": name}
        return given

    # Polls

    def polled(self, ids: Iterable[str]) -> None:
        """Note that somebody asked for the runs of these deployments: they are READY."""
        for id in ids:
            opened = self.records.open("deployment", id)
            if opened.is_present:
                self.leases.renew(LeaseKind.DEPLOYMENT, opened.id, POLLED)
                self._set_status(id, DeploymentStatus.READY)

    def not_ready(self, id: str, polled_at: datetime | None = None) -> None:
        """Note that nobody asked since a time; nothing happens where it is deleted."""
        self._set_status(id, DeploymentStatus.NOT_READY, last_polled=polled_at)

    def _set_status(self, id: str, status: DeploymentStatus, **more: Any) -> None:
        def attempt() -> None:
            opened = self.records.open("deployment", id)
            if opened.is_present:
                opened.change({"status": status, **more})
                self.ledger.commit(opened)

        retry_conflicts(attempt)

    # How a change is decided

    def _open(self, id: str) -> OpenRecord:
        opened = self.records.open("deployment", id)
        opened.require()
        return opened

    def _created(
        self, id: str, name: OpenName, fields: Mapping[str, Any], given: Mapping[str, Any]
    ) -> Record:
        made = schedules_of.replaced([], fields.get("schedules") or [])
        parts = {**given, "schedules": [{**one, "deployment_id": id} for one in made]}
        opened, *_ = self.records.prepared("deployment", parts, id=id)
        self._check(opened, fields)
        limit = self._own_limit(opened, fields["concurrency_limit"]) if _LIMIT in fields else []
        self.ledger.commit(opened, name, *limit)
        return opened.shown()

    def _changed(
        self,
        id: str,
        fields: Mapping[str, Any],
        given: Mapping[str, Any],
        decide: Callable[[list[Any], list[Any]], list[Any]],
    ) -> Record:
        opened = self._open(id)
        before, after = opened.shown(), dict(given)
        if fields.get("schedules") is not None or decide is schedules_of.replaced:
            made = decide(plain(before["schedules"]), list(fields.get("schedules") or []))
            after["schedules"] = [{**one, "deployment_id": id} for one in made]
        opened.change({key: value for key, value in after.items() if key != "created_by"})
        self._check(opened, fields)
        limit = self._own_limit(opened, fields["concurrency_limit"]) if _LIMIT in fields else []
        runs = self._old_runs(opened, before, Which.FUTURE)
        self.ledger.commit(opened, *limit, *runs)
        return opened.shown()

    def _decided(self, id: str, decide: Callable[[OpenRecord], object], which: Which | None) -> Record:
        def attempt() -> Record:
            opened = self._open(id)
            before = opened.shown()
            decide(opened)
            self.ledger.commit(opened, *self._old_runs(opened, before, which))
            return opened.shown()

        return retry_conflicts(attempt)

    def _old_runs(self, opened: OpenRecord, before: Record, which: Which | None) -> list[Stream[Any, Any]]:
        if which is None or not opened.news:
            return []
        return deleted_runs(self.ledger, before, which, self.leases.clock())

    def _freed(self, opened: OpenRecord) -> list[Stream[Any, Any]]:
        """The record deleted, and its name freed."""
        name = self.records.names.open(opened.KIND.name, *(opened.unique_name or ()))
        opened.delete()
        if name.holder == opened.id:
            name.free()
        return [opened, name]

    # What fields mean

    def _labels(self, flow: Record, fields: Mapping[str, Any]) -> dict[str, Any]:
        own = {"prefect.flow.id": flow.id}
        return {**plain(flow["labels"] or {}), **own, **(fields.get("labels") or {})}

    def _resolved(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The ids of the pool, the queue and the limit that fields name. Raises BadRecord, RecordNotFound."""
        found: dict[str, Any] = {}
        if fields.get(_LIMIT) and fields.get(_GLOBAL):
            raise BadRecord("deployment", [f"{_LIMIT}: cannot be given together with {_GLOBAL}"])
        if _GLOBAL in fields:
            limit = fields[_GLOBAL]
            found["concurrency_limit_id"] = limit and self.records.get("concurrency_limit", limit).id
        pool_name, queue_name = fields.get("work_pool_name"), fields.get("work_queue_name")
        if pool_name is None and queue_name is not None:
            pool_name = self._agent_pool()
        if pool_name is not None:
            self._check_variables(pool_name, fields.get("job_variables"))
            pool, queue = self.pools.get(pool_name), self.pools.queue_of(pool_name, queue_name)
            found |= {"work_pool_id": pool.id, "work_pool_name": pool["name"]}
            found |= {"work_queue_id": queue.id, "work_queue_name": queue["name"]}
        elif "work_pool_name" in fields:
            places = ("work_pool_id", "work_pool_name", "work_queue_id", "work_queue_name")
            found |= dict.fromkeys(places)
        return found

    def _agent_pool(self) -> str:
        if self.records.names.holder("work_pool", AGENT_POOL) is None:
            with suppress(RecordExists):  # another process was first
                self.pools.create({"name": AGENT_POOL})
        return AGENT_POOL

    def _check_variables(self, pool_name: str | None, variables: Mapping[str, Any] | None) -> None:
        """Raise BadParameters where job variables do not fit those that the template of the pool declares."""
        if pool_name is None or not variables:
            return
        template = plain(self.pools.get(pool_name)["base_job_template"])
        if schema := template.get("variables"):
            try:
                checked_parameters(kept(variables), schema, partial=True)
            except BadParameters as error:
                raise BadParameters("job_variables", error.wrong) from None

    def _check(self, opened: OpenRecord, fields: Mapping[str, Any]) -> None:
        """Raise BadParameters where the parameters of a deployment do not fit its schema."""
        now = opened.state.fields
        if not now["enforce_parameter_schema"] or not (fields.keys() & _CHECKED):
            return
        filled = self._filled(plain(now["parameters"]))
        checked_parameters(filled, plain(now["parameter_openapi_schema"]), partial=True)

    def _filled(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Parameters with the values of variables in their places. Raises BadParameters."""
        filled: dict[str, Any] = filled_in(parameters, partial(variable_value, self.records))
        return filled

    def _own_limit(self, opened: OpenRecord, limit: int | None) -> list[Stream[Any, Any]]:
        """The deployment's own limit, named after it: made, changed, or deleted for None.

        A limit that others share is never deleted. Changes the deployment's concurrency_limit_id.
        """
        named = self.records.names.open("concurrency_limit", f"deployment:{opened.id}")
        if named.holder is not None:
            own = self.records.open("concurrency_limit", named.holder)
            if limit is None:
                if opened.is_present:
                    opened.change({"concurrency_limit_id": None})
                return self._freed(own)
            own.change({"limit": limit})
            opened.change({"concurrency_limit_id": own.id})
            return [own]
        if limit is None:
            return []
        own, *_ = self.records.prepared("concurrency_limit", {"name": named.key[1], "limit": limit})
        named.take(own.id)
        opened.change({"concurrency_limit_id": own.id})
        return [own, named]


_LIMIT: Final = "concurrency_limit"
_GLOBAL: Final = "global_concurrency_limit_id"
_HANDLED: Final = frozenset({"schedules", _GLOBAL, "work_pool_name", "work_queue_name"})
"""Fields that mean more than their value."""
_CHECKED: Final = frozenset({"parameters", "parameter_openapi_schema", "enforce_parameter_schema"})
