"""Folding some streams anew into a copy that goes on: what they put in is taken out, and put in again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from psycopg import sql

from ledger import BadInput, DefinitionChanged, StreamNotFound, ViewFailed

from ..sql import query
from .applying import Applier, BadEvent, in_our_words, relation
from .copies import Copy, Shelf
from .view import View, filled


def learn_moves(shelf: Shelf, view: View, number: int) -> int:
    """Fold the streams anew in which moves happened that the copy did not know; returns how many they are.

    Raises ViewFailed where such moves are in already and the view sums over streams: it must be rebuilt.
    """
    with _at_once(shelf, view):
        copy = _locked(shelf, view, number)
        # Asked first: what is declared meanwhile is left for the next time.
        ((newest,),) = query(shelf.connection, shelf.schema, "last_declared")
        told = {"view": view.name, "copy": number, "sets": view.sets}
        many = _refold(shelf, view, copy, "streams_of_new_moves", told)
        query(shelf.connection, shelf.schema, "know_moves", view=view.name, copy=number, number=newest)
    return many


def refold(shelf: Shelf, view: View, number: int, *, prefix: str = "", category: str = "") -> int:
    """Fold anew the streams whose names start with a prefix, or of one category; returns how many they are.

    Readers see the rows as they were until all are there. Raises BadInput for a view that sums over streams.
    """
    if not view.forget:
        raise BadInput(
            f"view {view.name} sums over streams: a part of it cannot be rebuilt, "
            f"`pledger rebuild {view.name}` can"
        )
    start = f"{category}/" if category else prefix
    with _at_once(shelf, view):
        return _refold(shelf, view, _locked(shelf, view, number), "streams_under", {"prefix": start})


def retry(shelf: Shelf, view: View, number: int, stream: str) -> bool:
    """Follow a parked stream again, from the event on that failed; False where one fails again.

    Raises StreamNotFound where the stream is not parked, DefinitionChanged where other code made the copy.
    """
    with _at_once(shelf, view):
        copy = _locked(shelf, view, number)
        place = {"view": view.name, "copy": number, "stream": stream}
        rows = query(shelf.connection, shelf.schema, "parked_at", **place)
        if not rows:
            raise StreamNotFound(stream)
        ((position, tries),) = rows
        query(shelf.connection, shelf.schema, "lock_to_refold", view=view.name, copy=number)
        query(shelf.connection, shelf.schema, "unpark", **place)
        events = relation(shelf.schema, view, number, None, "of_stream")
        applier = Applier(shelf, view, copy, feed=events)
        applier.fill(position - 1, copy.position, stream=stream)
        if applier.parked:
            query(shelf.connection, shelf.schema, "tried", tries=tries + 1, **place)
        return not applier.parked


@contextmanager
def _at_once(shelf: Shelf, view: View) -> Iterator[None]:
    """All or nothing. Raises ViewFailed for what is wrong with the view, ServerUnavailable."""
    try:
        with in_our_words(view), shelf.connection.transaction():
            yield
    except BadEvent as error:
        raise ViewFailed(view.name, str(error)) from error


def _locked(shelf: Shelf, view: View, number: int) -> Copy:
    """A copy that is held where it is until the transaction ends."""
    query(shelf.connection, shelf.schema, "lock_copy", view=view.name, copy=number)
    copy = shelf.copy(view, number)
    if copy is None:
        raise BadInput(f"view {view.name} has no copy {number}")
    if copy.definition != view.definition:
        raise DefinitionChanged(view.name, number)
    return copy


def _refold(shelf: Shelf, view: View, copy: Copy, streams: str, parameters: dict[str, Any]) -> int:
    """Take out what some streams put in, and put it in again, up to where the copy stands."""
    connection, schema = shelf.connection, shelf.schema
    query(connection, schema, "drop_refolded")
    query(connection, schema, "make_refolded")
    query(connection, schema, streams, **parameters)
    ((many,),) = query(connection, schema, "count_refolded")
    if many and not view.forget:
        _refuse_to_refold(shelf, view, copy)
    elif many:
        query(connection, schema, "lock_to_refold", view=view.name, copy=copy.number)
        names = {
            **shelf.names(view, copy.number),
            "streams": sql.SQL("(SELECT stream FROM pg_temp.refolded)"),
        }
        for text in view.forget:
            connection.execute(filled(text, names))
        query(connection, schema, "unpark_refolded", view=view.name, copy=copy.number)
        query(connection, schema, "forget_ahead", view=view.name, copy=copy.number)
        events = relation(schema, view, copy.number, None, "of_refolded")
        Applier(shelf, view, copy, feed=events).fill(0, copy.position)
    query(connection, schema, "drop_refolded")
    return int(many)


def _refuse_to_refold(shelf: Shelf, view: View, copy: Copy) -> None:
    """Raise ViewFailed where a view that sums over streams has events in it that mean something else now."""
    if passed := query(shelf.connection, shelf.schema, "streams_passed", upto=copy.position):
        ((stream,),) = passed
        raise ViewFailed(
            view.name,
            f"what events of {stream} mean was declared after they were in, and the view sums over streams",
        )
