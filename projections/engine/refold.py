"""Folding some streams again in a copy: their rows are removed and built again, the others stay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from psycopg import sql

from ledger import BadInput, DefinitionChanged, StreamNotFound, ViewFailed
from ledger.log.sql import Statement, Statements

from .apply import Applier, BadEvent, relation, view_errors
from .copies import Copies, Copy
from .view import View, filled

SQL = Statements(__package__, "refold", "copies")


def learn_statuses(copies: Copies, view: View, number: int) -> int:
    """Fold again the streams with topics whose statuses the copy did not contain; returns their number.

    Raises ViewFailed if the copy contains such events and the view sums over streams: it must be rebuilt.
    """
    with _at_once(copies, view):
        copy = _locked(copies, view, number)
        # Read first: what is announced meanwhile is left for the next call.
        ((newest,),) = copies.run(SQL.last_announced)
        told = {"view": view.name, "copy": number, "sets": view.sets}
        many = _refold(copies, view, copy, SQL.streams_of_new_statuses, told)
        copies.run(SQL.know_statuses, view=view.name, copy=number, number=newest)
    return many


def refold(copies: Copies, view: View, number: int, *, prefix: str = "", category: str = "") -> int:
    """Fold again the streams whose names start with a prefix, or of one category; returns their number.

    Readers see the old rows until all new ones are there. Raises BadInput for a view that sums over streams.
    """
    if not view.forget:
        raise BadInput(
            f"view {view.name} sums over streams and cannot be rebuilt in part: run "
            f"`pledger rebuild {view.name}`"
        )
    start = f"{category}/" if category else prefix
    with _at_once(copies, view):
        return _refold(copies, view, _locked(copies, view, number), SQL.streams_under, {"prefix": start})


def retry(copies: Copies, view: View, number: int, stream: str) -> bool:
    """Follow a parked stream again, from the event on that failed; False if one fails again.

    Raises StreamNotFound if the stream is not parked, DefinitionChanged if other code built the copy.
    """
    with _at_once(copies, view):
        copy = _locked(copies, view, number)
        place = {"view": view.name, "copy": number, "stream": stream}
        rows = copies.run(SQL.parked_at, **place)
        if not rows:
            raise StreamNotFound(stream)
        ((position, tries),) = rows
        copies.run(SQL.lock_to_refold, view=view.name, copy=number)
        copies.run(SQL.unpark, **place)
        events = relation(copies.schema, view, number, None, "of_stream")
        applier = Applier(copies, view, copy, feed=events)
        applier.fill(position - 1, copy.position, stream=stream)
        if applier.parked:
            copies.run(SQL.tried, tries=tries + 1, **place)
        return not applier.parked


@contextmanager
def _at_once(copies: Copies, view: View) -> Iterator[None]:
    """A transaction: all or nothing. Raises ViewFailed for errors of the view, ServerUnavailable."""
    try:
        with view_errors(view), copies.connection.transaction():
            yield
    except BadEvent as error:
        raise ViewFailed(view.name, str(error)) from error


def _locked(copies: Copies, view: View, number: int) -> Copy:
    """A copy, locked at its position until the transaction ends. Raises FedFromElsewhere."""
    copies.run(SQL.lock_copy, view=view.name, copy=number)
    copy = copies.copy(view, number)
    if copy is None:
        raise BadInput(f"view {view.name} has no copy {number}")
    if copy.definition != view.definition:
        raise DefinitionChanged(view.name, number)
    copies.refuse_fed(view, number)
    return copy


def _refold(copies: Copies, view: View, copy: Copy, streams: Statement, parameters: dict[str, Any]) -> int:
    """Remove what some streams contributed, and apply them again, up to the copy's position."""
    copies.run(SQL.drop_refolded)
    copies.run(SQL.make_refolded)
    copies.run(streams, **parameters)
    ((many,),) = copies.run(SQL.count_refolded)
    if many and not view.forget:
        _refuse_to_refold(copies, view, copy)
    elif many:
        copies.run(SQL.lock_to_refold, view=view.name, copy=copy.number)
        names = {
            **copies.names(view, copy.number),
            "streams": sql.SQL("(SELECT stream FROM pg_temp.refolded)"),
        }
        for text in view.forget:
            copies.connection.execute(filled(text, names))
        copies.run(SQL.unpark_refolded, view=view.name, copy=copy.number)
        copies.run(SQL.forget_ahead, view=view.name, copy=copy.number)
        events = relation(copies.schema, view, copy.number, None, "of_refolded")
        Applier(copies, view, copy, feed=events).fill(0, copy.position)
    copies.run(SQL.drop_refolded)
    return int(many)


def _refuse_to_refold(copies: Copies, view: View, copy: Copy) -> None:
    """Raise ViewFailed if a view that sums over streams contains events whose meaning has changed."""
    if passed := copies.run(SQL.streams_passed, upto=copy.position):
        ((stream,),) = passed
        raise ViewFailed(
            view.name,
            f"statuses of {stream} were announced after its events were applied; the view sums over streams",
        )
