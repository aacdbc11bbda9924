"""`pledger machines list` and `show`: which machines there are, and what one of them allows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import typer

from ..plain import iso, local, plain
from ..printing import Column, is_terminal, json_line, table
from ..session import AsJson, session_of
from .asking import Asked, Name, Number, asked
from .picture import Arrow, Node, amount, called, span


def add_to(group: typer.Typer) -> None:
    """Add the commands of this module."""
    group.command("list")(list_)
    group.command()(show)


def list_(context: typer.Context, as_json: AsJson = False) -> None:
    """List the machines that the ledger knows, by name.

    Each with the number of its last definition, how many states that has, how many objects moved, how many
    moves there were, and when the last one was. A machine is known once an object moved; objects that never
    moved are in the ledger nowhere, and not counted.

    JSON, one object a line: machine, definition, defined_at, states, initial_state, objects, moves,
    last_move (null where nothing moved).
    """
    from projections.machines import machines
    from projections.machines.activity import activity

    session = session_of(context, as_json)
    with session.ledger() as log:
        known = machines(log)
        moved = activity(log, [one.name for one in known])
    rows = [(one, moved[one.name]) for one in known]
    if session.json:
        for one, its in rows:
            start = {"machine": one.name, "definition": one.number, "defined_at": one.since}
            start |= {"states": len(one.states), "initial_state": one.initial_state}
            json_line(plain(start | its._asdict()))
    else:
        columns = [Column("machine", keep=True), *(Column(title, number=True) for title in NUMBERS)]
        cells = (
            [one.name, str(one.number), str(len(one.states)), *map(str, its[:2]), _time(its.last_move)]
            for one, its in rows
        )
        table([*columns, Column("last move")], cells, color=session.color)
    if not rows:
        session.say("no machine is known yet: one is once an object moved")


NUMBERS = ("definition", "states", "objects", "moves")


def _time(at: datetime | None) -> str:
    if at is None:
        return ""
    return local(at) if is_terminal() else iso(at)


def show(context: typer.Context, name: Name, number: Number = None, as_json: AsJson = False) -> None:
    """Show a machine as its table, with how many objects are in each state.

    A line for each transition: the state, what it is (initial, terminal, or not declared, where objects are
    in a state that the definition has no more), its objects, the state that may follow, the time after which
    that is due by itself, the model of what is said with the move, and the guards and callbacks by name.

    JSON, one object: machine, definition, latest (number of the last definition), defined_at, actor,
    changed (lines: what this definition changed), initial_state, objects, states (state, initial, terminal,
    declared, objects, successors: to, after in seconds, metadata, guards, callbacks with kind and name).
    """
    session = session_of(context, as_json)
    with session.ledger() as log:
        found = asked(session, log, name, number)
    if session.json:
        json_line(_object(found))
        return
    table(COLUMNS, _rows(found), color=session.color)
    last = "" if found.latest == found.definition.number else f" of {found.latest}"
    objects = amount(found.picture.objects, "object")
    since = local(found.definition.at)
    session.say(f"{name}, definition {found.definition.number}{last}, recorded {since}; {objects}")


COLUMNS = [
    *(Column("state", keep=True), Column("kind"), Column("objects", number=True), Column("to", keep=True)),
    *(Column("after"), Column("metadata"), Column("calls", keep=True)),
]


def _rows(found: Asked) -> Iterator[list[str]]:
    """A line a transition; at a terminal the state stands in the first of its lines only."""
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


def _called(found: Asked, arrow: Arrow) -> list[dict[str, str]]:
    ones = called(found.definition.defined, arrow.from_state, arrow.to_state)
    return [{"kind": one["kind"], "name": one["name"]} for one in ones]


def _object(found: Asked) -> dict[str, Any]:
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
        "defined_at": iso(definition.at), "actor": definition.actor, "changed": definition.changed.lines,
        "initial_state": definition.defined.initial_state, "objects": found.picture.objects, "states": states,
    }  # fmt: skip


def _successor(found: Asked, arrow: Arrow) -> dict[str, Any]:
    calls = _called(found, arrow)
    return {
        "to": arrow.to_state,
        "after": arrow.after,
        "metadata": arrow.metadata,
        "guards": [one["name"] for one in calls if one["kind"] == "guard"],
        "callbacks": [one for one in calls if one["kind"] != "guard"],
    }
