"""`pledger machines list` and `show`: the machines in the ledger, and the definition of one."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import typer

from ..output import Column, is_terminal, iso, json_line, local, table, titled
from ..session import AsJson, session_of
from .lookup import Name, Number, ShownMachine, shown_machine
from .picture import Arrow, Node, amount, called, span


def list_(context: typer.Context, as_json: AsJson = False) -> None:
    """List the machines in the ledger, by name.

    Shows the number of the last definition, the states, objects and moves of each machine, and the time of
    the last move. A machine is in the ledger after the first move of an object; objects that never moved are
    not counted.

    JSON, one object per line: machine, definition, defined_at, states, initial_state, objects, moves,
    last_move (null before the first move).
    """
    from projections.machines import machines
    from projections.machines.info import activity

    session = session_of(context, as_json)
    with session.ledger() as log:
        known = machines(log)
        moved = activity(log, [one.name for one in known])
    rows = [
        {"machine": one.name, "definition": one.number, "defined_at": one.since, "states": len(one.states),
         "initial_state": one.initial_state, **moved[one.name]._asdict()}
        for one in known
    ]  # fmt: skip
    columns = [Column("machine", keep=True), *titled(*NUMBERS, number=True), Column("last move")]
    session.print_rows(rows, columns, itemgetter("machine", *NUMBERS, "last_move"))
    if not rows:
        session.say("the ledger has no machine: the first move of an object records its machine")


NUMBERS = ("definition", "states", "objects", "moves")


def show(context: typer.Context, name: Name, number: Number = None, as_json: AsJson = False) -> None:
    """Show a machine's transitions, with the number of objects in each state.

    One line per transition: the state, its kind (initial, terminal, or not declared: only an earlier
    definition has it, and objects are still in it), its objects, the next state, the timeout of the
    transition, the model of its metadata, and the names of its guards and callbacks. Below: what the
    definition changed.

    JSON, one object: machine, definition, latest (number of the last definition), defined_at, actor, changed
    (lines: what this definition changed), initial_state, objects, states (state, initial, terminal, declared,
    objects, successors: to, after in seconds, metadata, guards, callbacks with kind and name).
    """
    session = session_of(context, as_json)
    with session.ledger() as log:
        found = shown_machine(session, log, name, number)
    if session.json:
        json_line(_object(found))
        return
    table(COLUMNS, _rows(found), color=session.color)
    last = "" if found.latest == found.definition.number else f" of {found.latest}"
    objects = amount(found.picture.objects, "object")
    at = found.definition.at
    under = f"definition {found.definition.number}{last}, recorded {local(at)}" if at else "not defined"
    session.say(f"{name}, {under}; {objects}")
    if found.definition.number > 1 and (changes := found.definition.changed.lines):
        session.say(f"changed by definition {found.definition.number}: {'; '.join(changes)}")
    if gone := [node for node in found.picture.nodes if not node.declared]:
        many = amount(sum(node.objects or 0 for node in gone), "object")
        session.say(
            f"{many} in a state that is not declared: declare it again with a transition out, such as "
            f"From({gone[0].state!r}).To(…)"
        )


COLUMNS = [
    *(Column("state", keep=True), Column("kind"), Column("objects", number=True), Column("to", keep=True)),
    *(*titled("after", "metadata"), Column("calls", keep=True)),
]


def _rows(found: ShownMachine) -> Iterator[list[str]]:
    """One line a transition; on a terminal the state is only in its first line."""
    for node in found.picture.nodes:
        start = [node.state, _kind(node), f"{node.objects or 0}"]
        arrows = [arrow for arrow in found.picture.arrows if arrow.from_state == node.state]
        if not arrows:
            yield [*start, "", "", "", ""]
        for nth, arrow in enumerate(arrows):
            after = "" if arrow.after is None else span(arrow.after)
            calls = ", ".join(f"{one['kind']} {one['name']}" for one in _called(found, arrow))
            state = ["", "", ""] if nth and is_terminal() else start
            yield [*state, arrow.to_state, after, arrow.metadata or "", calls]


def _kind(node: Node) -> str:
    words = ["initial"] * node.initial + ["terminal"] * node.terminal + ["not declared"] * (not node.declared)
    return " ".join(words)


def _called(found: ShownMachine, arrow: Arrow) -> list[dict[str, str]]:
    ones = called(found.definition.defined, arrow.from_state, arrow.to_state)
    return [{"kind": one["kind"], "name": one["name"]} for one in ones]


def _object(found: ShownMachine) -> dict[str, Any]:
    definition = found.definition
    arrows = found.picture.arrows
    states = [
        {
            "state": node.state, "initial": node.initial, "terminal": node.terminal,
            "declared": node.declared, "objects": node.objects or 0,
            "successors": [_successor(found, one) for one in arrows if one.from_state == node.state],
        }
        for node in found.picture.nodes
    ]  # fmt: skip
    return {
        "machine": found.name, "definition": definition.number, "latest": found.latest,
        "defined_at": definition.at and iso(definition.at), "actor": definition.actor,
        "changed": definition.changed.lines,
        "initial_state": definition.defined.initial_state, "objects": found.picture.objects, "states": states,
    }  # fmt: skip


def _successor(found: ShownMachine, arrow: Arrow) -> dict[str, Any]:
    calls = _called(found, arrow)
    return {
        "to": arrow.to_state,
        "after": arrow.after,
        "metadata": arrow.metadata,
        "guards": [one["name"] for one in calls if one["kind"] == "guard"],
        "callbacks": [one for one in calls if one["kind"] != "guard"],
    }
