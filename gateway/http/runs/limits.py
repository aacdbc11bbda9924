"""Routes of concurrency limits: those with names (v2), and those of tags (v1), which are the same limits."""

from __future__ import annotations

from math import ceil
from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import Meta

from ledger import RecordExists, RecordNotFound
from ledger.runs.limit import TAG, Limit, OpenLimit
from ledger.runs.limits import Full

from ..problems import Refusal
from .bodies import Body, FieldsOf
from .calls import Call, Reply, Routes
from .lists import MOST, Question

ROUTES = Routes("")
V2, V1 = "/v2/concurrency_limits", "/concurrency_limits"
KIND = "concurrency_limit"
Fields = Annotated[dict[str, Any], FieldsOf(KIND)]
Slots = Annotated[int, Meta(ge=1, lt=2**31)]
Name = Annotated[str, Meta(min_length=1)]
Names = Annotated[list[Name], Meta(min_length=1, max_length=1000)]
LeaseSeconds = Annotated[float, Meta(ge=60, le=86400)]


class Increment(Body):
    """Slots to take. mode: `rate_limit` only for limits whose slots come back by decay."""

    slots: Slots
    names: Names
    mode: Literal["concurrency", "rate_limit"] = "concurrency"


class LeasedIncrement(Increment):
    """Slots to take for a time, unless the lease is renewed. holder: who has them, as type and id."""

    lease_duration: LeaseSeconds = 300.0
    holder: dict[str, Any] | None = None


class Decrement(Body):
    """Slots to give back that were taken without a lease."""

    slots: Slots
    names: Names
    occupancy_seconds: Annotated[float, Meta(gt=0)] | None = None


class LeaseEnd(Body):
    """The lease whose slots are given back."""

    lease_id: UUID


class Renewal(Body):
    """For how many seconds from now a lease goes on."""

    lease_duration: LeaseSeconds = 300.0


@ROUTES.post(f"{V2}/increment-with-lease")
def increment_with_lease(call: Call, body: LeasedIncrement) -> Reply:
    """Take slots of all these limits, or of none: 423 with Retry-After."""
    taken = call.services.limits.increment(
        body.names, body.slots, body.mode, lease_seconds=body.lease_duration, holder=body.holder
    )
    if isinstance(taken, Full):
        return _full(taken)
    return Reply({"lease_id": taken.lease, "limits": _briefly(taken.limits)})


@ROUTES.post(f"{V2}/leases/{{id:uuid}}/renew", status=204)
def renew(call: Call, id: str, body: Renewal) -> None:
    """Let a lease go on; 410 if its slots went to others."""
    if not call.services.limits.renew(id, body.lease_duration):
        raise Refusal(410, "Gone", "Lease not found - it may have expired or been revoked")


@ROUTES.post(f"{V2}/decrement-with-lease", status=204)
def decrement_with_lease(call: Call, body: LeaseEnd) -> None:
    """Give back what a lease holds; a repeat changes nothing."""
    call.services.limits.release(str(body.lease_id))


@ROUTES.post(f"{V2}/increment")
def increment(call: Call, body: Increment) -> Reply:
    """Take slots that nobody gives back but `decrement`, or decay; or 423 with Retry-After."""
    taken = call.services.limits.increment(body.names, body.slots, body.mode)
    return _full(taken) if isinstance(taken, Full) else Reply(_briefly(taken.limits))


@ROUTES.post(f"{V2}/decrement")
def decrement(call: Call, body: Decrement) -> Any:
    """Give back slots that were taken without a lease."""
    return _briefly(call.services.limits.decrement(body.names, body.slots, body.occupancy_seconds))


@ROUTES.post(f"{V2}/", status=201)
def create(call: Call, body: Fields) -> Any:
    """A new limit; 409 if there is one of this name."""
    return _v2(call, call.services.records.create(KIND, body).id)


@ROUTES.look(f"{V2}/filter")
def filter(call: Call, body: Question) -> Any:
    """All limits by name."""
    opened = call.services.limits.all()
    return [one.listed_at(opened.now) for one in [*opened][body.offset : body.offset + body.many]]


@ROUTES.get(f"{V2}/{{id_or_name:path}}")
def get(call: Call, id_or_name: str) -> Any:
    """One limit by its id or name, with its slots now."""
    return _v2(call, _id_of(call, id_or_name))


@ROUTES.patch(f"{V2}/{{id_or_name:path}}")
def change(call: Call, id_or_name: str, body: Fields) -> None:
    """Change a limit."""
    call.services.records.change(KIND, _id_of(call, id_or_name), body)


@ROUTES.delete(f"{V2}/{{id_or_name:path}}")
def delete(call: Call, id_or_name: str) -> None:
    """Delete a limit."""
    call.services.records.delete(KIND, _id_of(call, id_or_name))


# Limits of tags


class TagLimit(Body):
    """A limit of how many task runs with a tag run at the same time."""

    tag: str
    concurrency_limit: Annotated[int, Meta(ge=0, lt=2**31)]


class Reset(Body):
    """The ids of the task runs that hold slots after all; by default none."""

    slot_override: list[UUID] | None = None


class TagSlots(Body):
    """The tags of a task run that begins or ends."""

    names: list[str]
    task_run_id: UUID


@ROUTES.post(f"{V1}/")
def create_of_tag(call: Call, body: TagLimit) -> Reply:
    """The limit of a tag, created or changed."""
    records, name = call.services.records, f"{TAG}{body.tag}"
    try:
        id = records.create(KIND, {"name": name, "limit": body.concurrency_limit}).id
        return Reply(_v1(call, id), 201)
    except RecordExists as there:
        records.change(KIND, there.id, {"limit": body.concurrency_limit})
        return Reply(_v1(call, there.id))


@ROUTES.look(f"{V1}/filter")
def filter_of_tags(call: Call, body: Question) -> Any:
    """The limits of tags by name."""
    found = [one for one in call.services.limits.all() if one.state.name.startswith(TAG)]
    return [one.shown_by_tag() for one in found[body.offset : body.offset + min(body.many, MOST)]]


@ROUTES.post(f"{V1}/increment")
def increment_tags(call: Call, body: TagSlots) -> Reply:
    """Take one slot of each tag that has a limit, or 423 with Retry-After."""
    taken = call.services.limits.take_tags(body.names, str(body.task_run_id))
    return _full(taken) if isinstance(taken, Full) else Reply(_briefly(taken.limits))


@ROUTES.post(f"{V1}/decrement")
def decrement_tags(call: Call, body: TagSlots) -> Any:
    """Give back the slots of these tags that a task run holds."""
    return _briefly(call.services.limits.release_tags(body.names, str(body.task_run_id)))


@ROUTES.post(f"{V1}/tag/{{tag:path}}/reset")
def reset(call: Call, tag: str, body: Reset) -> None:
    """Let only these task runs hold slots."""
    runs = [str(one) for one in body.slot_override or ()]
    holders = {run: {"slots": 1, "holder": {"type": "task_run", "id": run}} for run in runs}
    call.services.limits.reset(_id_of_tag(call, tag), holders)


@ROUTES.get(f"{V1}/tag/{{tag:path}}")
def get_of_tag(call: Call, tag: str) -> Any:
    """The limit of a tag; active_slots: the ids of task runs."""
    return _v1(call, _id_of_tag(call, tag))


@ROUTES.delete(f"{V1}/tag/{{tag:path}}", status=200)
def delete_of_tag(call: Call, tag: str) -> None:
    """Delete the limit of a tag."""
    call.services.records.delete(KIND, _id_of_tag(call, tag))


@ROUTES.get(f"{V1}/{{id:uuid}}")
def get_by_id(call: Call, id: str) -> Any:
    """The limit of a tag by its id."""
    return _v1(call, id)


@ROUTES.delete(f"{V1}/{{id:uuid}}", status=200)
def delete_by_id(call: Call, id: str) -> None:
    """Delete the limit of a tag by its id."""
    call.services.records.delete(KIND, id)


def _full(full: Full) -> Reply:
    detail = f"no slot is free of: {', '.join(full.limits)}"
    return Reply({"detail": detail}, 423, {"Retry-After": str(ceil(full.retry_after_seconds * 10) / 10)})


def _briefly(limits: Any) -> list[dict[str, Any]]:
    found: list[Limit] = [*limits]
    return [{"id": one.id, "name": one.name, "limit": one.limit} for one in found]


def _id_of(call: Call, id_or_name: str) -> str:
    """The id of a limit. Raises RecordNotFound."""
    try:
        return str(UUID(id_or_name))
    except ValueError:
        return call.services.records.named(KIND, id_or_name).id


def _id_of_tag(call: Call, tag: str) -> str:
    return call.services.records.named(KIND, f"{TAG}{tag}").id


def _opened(call: Call, id: str) -> tuple[OpenLimit, Any]:
    opened = call.services.limits.opened(ids=[id])
    if not opened:
        raise RecordNotFound(KIND, id)
    return opened.limits[0], opened.now


def _v2(call: Call, id: str) -> dict[str, Any]:
    limit, now = _opened(call, id)
    return limit.shown_at(now)


def _v1(call: Call, id: str) -> dict[str, Any]:
    return _opened(call, id)[0].shown_by_tag()
