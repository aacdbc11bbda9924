"""Routes of machines: definitions, the objects in each state, one object, and its moves."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from ledger import Ledger, TransitionConflict, acting, split_name
from ledger.domain.known import KNOWN
from ledger.machines import Machine
from projections.audit.fold import stream_of
from projections.audit.snapshot import know_machine
from projections.engine.rows import rows as rows_of
from projections.machines import MachineInfo, machine_info
from projections.machines import machines as known_machines
from projections.machines.info import activity

from ..access import READER, Log, Operator
from ..answers import answer, page, told
from ..conditions import IfMatch, IfNoneMatch, Key, expected_version, is_unchanged
from ..log import After, Limit
from ..problems import Refusal
from ..reading import PlannedRoute
from .models import MachineListed, MachineShown, Moved, NewMove, ObjectListed, ObjectShown

ROUTES = APIRouter(route_class=PlannedRoute, prefix="/machines", tags=["machines"])
State = Annotated[str | None, Query(description="Only objects in this state.")]


@ROUTES.get("", dependencies=[READER], **told(list[MachineListed]))
def machines(request: Request, log: Log) -> Response:
    """The machines in the ledger, by name."""
    known = known_machines(log)
    return page(request, [_listed(log, one) for one in known], len(known) + 1)


@ROUTES.get("/{machine}", dependencies=[READER], **told(MachineShown))
def machine(log: Log, machine: str) -> Response:
    """The last definition of a machine, and how busy it is."""
    known = machine_info(log, machine)
    ways = [{"from": old, "to": new} for old, new in known.pairs]
    return answer({**_listed(log, known), "transitions": ways, "dropped": list(known.dropped)})


@ROUTES.get("/{machine}/objects", dependencies=[READER], **told(list[ObjectListed]))
def objects(
    request: Request, log: Log, machine: str, state: State = None, after: After = 0, limit: Limit = 100
) -> Response:
    """The objects of a machine by the position of their last move, as fresh as the view in_state."""
    where = {"category": machine_info(log, machine).name} | ({} if state is None else {"status": state})
    found = [json.loads(row.text) for row in rows_of(log, "in_state", where=where, after=after, limit=limit)]
    rows = [
        {
            "key": [str(part) for part in split_name(one["stream"])[1]], "state": one["status"],
            "since": one["since"], "version": one["version"], "position": one["position"],
        }
        for one in found
    ]  # fmt: skip
    return page(request, rows, limit, {"after": rows[-1]["position"]} if rows else None)


@ROUTES.get("/{machine}/objects/{key:path}", dependencies=[READER], **told(ObjectShown, headers=["ETag"]))
def one_object(log: Log, machine: str, key: str, if_none_match: IfNoneMatch = None) -> Response:
    """One object now; one that never moved is in the initial state, at version 0. Its ETag is its version.

    key: as in the name of its stream, its parts with a slash between them.
    """
    known = machine_info(log, machine)
    name = f"{known.name}/{key}"
    know_machine(log, name)
    stream = stream_of(name)
    if stream is None:
        raise Refusal(404, "NotThere", f"{key!a} is no key of an object of {known.name}")
    opened = log.load(type(stream), *stream.key)
    if is_unchanged(if_none_match, opened.version):
        return Response(status_code=304, headers={"ETag": f'"{opened.version}"'})
    state = opened.state.status or known.initial_state
    allowed = [new for old, new in known.pairs if old == state]
    told = {"machine": known.name, "key": list(map(str, stream.key)), "state": state}
    return answer({**told, "version": opened.version, "allowed": allowed}, etag=opened.version)


@ROUTES.post("/{machine}/objects/{key:path}", **told(Moved, headers=["ETag"]))
def move(
    log: Log,
    caller: Operator,
    machine: str,
    key: str,
    new: NewMove,
    if_match: IfMatch = None,
    command: Key = None,
) -> Response:
    """Move an object. If-Match must name the version on which the decision rests, or be `*`.

    409 if the table or a guard refuses, 412 if somebody has moved it since, 428 without If-Match.
    """
    expected = expected_version(if_match)
    about = _machine(log, machine)(log, split_name(f"{machine}/{key}")[1])
    with acting(actor=caller.name):
        try:
            done = about.transition_to(new.to, **new.metadata).execute(command=command, expected=expected)
        except TransitionConflict as error:
            if expected is None:
                raise
            raise Refusal(412, "PreconditionFailed", str(error)) from error
    told: dict[str, Any] = {
        "machine": machine, "key": list(map(str, about.key)), "from_state": done.from_state,
        "to_state": done.to_state, "version": done.number, "recorded_at": done.at,
        "metadata": done.metadata,
    }  # fmt: skip
    return answer(told, etag=done.number)


def _listed(log: Ledger, known: MachineInfo) -> dict[str, Any]:
    moved = activity(log, [known.name])[known.name]
    return {
        "machine": known.name, "definition": known.number, "defined_at": known.since,
        "initial_state": known.initial_state, "states": list(known.states), **moved._asdict(),
    }  # fmt: skip


def _machine(log: Ledger, name: str) -> type[Machine]:
    """The class of a machine, with its guards. Raises UnknownMachine; Refusal: 409 if it is not imported."""
    if name not in KNOWN.machines:
        machine_info(log, name)
        detail = (
            f"the server has not imported the module that declares {name}: give `pledger serve --machines`"
        )
        raise Refusal(409, "MachineNotImported", detail)
    found: type[Machine] = KNOWN.machines[name]
    return found
