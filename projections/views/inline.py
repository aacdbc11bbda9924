"""
Views that appends keep: what an append does to one, and how it is changed who keeps it.

Every append of an inline view holds the view's lock, shared and to its end, looks only then whether the
view is inline and which copy is read, and does what the view's statements say with its own events. Whoever
changes any of that holds the lock alone (`exclusively`): then every event that can be seen is in, and every
event that cannot be seen yet is of an append that waits, and will look again. So nothing is missed, and
nothing is applied twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Final, LiteralString

import psycopg
from psycopg import sql

from ledger import BadInput, LedgerBusy, UnknownView, ViewFailed
from ledger.store.install import views_schema

from ..sql import query, template
from .applying import Applier
from .copies import Shelf
from .refolding import learn_moves
from .view import View, filled

HOLD_MS: Final = (100, 200, 400, 600)
"""How long to wait for the lock of a view, try after try: appends wait behind who waits for it."""
WORK_MS: Final = 500
"""How long to wait for anything else while it is held."""
MOST: Final = 20_000
"""Events that are applied while appends wait, or that may be beyond what is safe to read."""


@contextmanager
def exclusively(shelf: Shelf, view: str, patience: float = 60.0) -> Iterator[bool]:
    """A transaction in which no append writes the view, nor commits while the view is inline; whether it is.

    Appends wait meanwhile, so be brief: bring a copy to what they have written (`take_in`), switch, leave.
    What is in the block counts when it ends. Raises LedgerBusy where the lock is not had within `patience`
    seconds, since some append is held open, UnknownView where nothing is known of the view.
    """
    deadline = time.monotonic() + patience
    for attempt in count():
        hold_ms = HOLD_MS[min(attempt, len(HOLD_MS) - 1)]
        with shelf.connection.transaction():
            if _hold(shelf, view, hold_ms):
                yield _inline_of(shelf, view)[0]
                return
        if time.monotonic() > deadline:
            raise LedgerBusy(
                f"view {view}: an append or a projector held it all the time; see `pledger doctor`"
            )
        time.sleep(hold_ms / 1000)  # for the appends that waited


def take_in(shelf: Shelf, view: View, number: int, bound: int) -> None:
    """Bring a copy to every event that can be seen; in `exclusively`, of a view that is or becomes inline.

    bound: what was safe to read, asked before. Where events beyond it are in too, the copy's row says
    which, so that a follower can go on. Raises LedgerBusy where that is more than appends should wait for,
    NewMoves.
    """
    ((after, _),) = query(shelf.connection, shelf.schema, "stands_at", view=view.name, copy=number)
    ((last, many),) = query(shelf.connection, shelf.schema, "visible_after", after=after)
    _check_size(view.name, many)
    if many:
        copy = shelf.copy(view, number)
        assert copy is not None
        applier = Applier(shelf, view, copy)
        applier.live = False
        applier.apply(after, last, 0)
    _stand(shelf, view.name, number, after, bound)


def settle(shelf: Shelf, view: str, number: int, bound: int) -> None:
    """Say of the copy that appends kept how far it is; in `exclusively`. The same errors as `take_in`."""
    ((after, _),) = query(shelf.connection, shelf.schema, "stands_at", view=view, copy=number)
    _stand(shelf, view, number, after, bound)


def learn(shelf: Shelf, view: View) -> int:
    """Fold the streams of an inline view anew that have moves which were declared since; returns how many.

    Appends wait for that. Mostly there are none: a domain is declared before its first event. Where an append
    holds the view just now, nothing is done: call it again.
    """
    if query(shelf.connection, shelf.schema, "news_of_moves", view=view.name) != [(True,)]:
        return 0
    bound = bound_of(shelf)
    try:
        with exclusively(shelf, view.name, patience=0) as inline:
            _, live = _inline_of(shelf, view.name)
            return _learned(shelf, view, live, bound) if inline and live is not None else 0
    except LedgerBusy:
        return 0


def _learned(shelf: Shelf, view: View, live: int, bound: int) -> int:
    """What is folded anew is taken out where it is beyond what is safe, and so must be taken in again."""
    settle(shelf, view.name, live, bound)
    many = learn_moves(shelf, view, live)
    take_in(shelf, view, live, bound)
    query(shelf.connection, shelf.schema, "set_inline", view=view.name, inline=True)
    return many


def bound_of(shelf: Shelf) -> int:
    """How far the log is safe to read; ask it before the view is held."""
    ((_, _, bound),) = query(shelf.connection, shelf.schema, "next_batch", after=2**62, limit=1, known=-1)
    return int(bound)


def make_ready(shelf: Shelf, view: View, number: int) -> None:
    """Note with a copy what an append does to it, so that it can be switched to while the view is inline.

    Raises BadInput for a view that no append can keep.
    """
    check(view)
    texts = _texts(shelf, view, number, _batch(shelf, view, "position BETWEEN $1 AND $2"))
    query(shelf.connection, shelf.schema, "keep_effect", view=view.name, copy=number, effect=texts)


def make_keeper(shelf: Shelf, view: View, number: int) -> None:
    """Write the function that appends call, with kept plans for one copy; another copy costs them more."""
    make_ready(shelf, view, number)
    ((high, low),) = query(shelf.connection, shelf.schema, "key_of_view", view=view.name)
    one = _texts(shelf, view, number, _batch(shelf, view, "position = p_first"))
    many = _texts(shelf, view, number, _batch(shelf, view, "position BETWEEN p_first AND p_last"))
    body = sql.SQL(template("keeper_body")).format(
        schema=sql.Identifier(shelf.schema), view=sql.Literal(view.name), copy=sql.Literal(number),
        high=sql.Literal(high), low=sql.Literal(low), one=_lines(one), many=_lines(many),
    )  # fmt: skip
    names = {"routine": sql.Identifier(routine(view.name)), "body": sql.Literal(body.as_string(None))}
    for name in ("make_keeper", "open_keeper", "allow_keeper"):
        shelf.connection.execute(_with(shelf, name, names))


def try_keeper(shelf: Shelf, view: View) -> None:
    """Do what an append would do, on no events. Raises ViewFailed where that fails."""
    try:
        with shelf.connection.transaction():
            shelf.connection.execute(
                _with(shelf, "call_keeper", {"routine": sql.Identifier(routine(view.name))})
            )
    except psycopg.Error as error:
        said = error.diag.message_primary or str(error)
        raise ViewFailed(view.name, f"{said}, when an append does it") from error


def routine(view: str) -> str:
    """The name of the function that appends call for a view, in the schema of views."""
    return f"keep_{view}"


def effect_of(view: str) -> str:
    """The name under which it is attached, which the error of a refused append says."""
    return f"view {view}"


def routine_with_schema(schema: str, view: str) -> str:
    """The function, as `attach_effect` wants it."""
    return sql.Identifier(views_schema(schema), routine(view)).as_string(None)


def check(view: View) -> None:
    """Refuse a view that no append can keep. Raises BadInput."""
    if not view.is_sql:
        raise BadInput(f"view {view.name} needs Python for its batches: an append cannot keep it")
    if not view.inline:
        raise BadInput(
            f"view {view.name} does not say `inline = True`: only a view whose statements give the same in "
            "any order of appends can be kept by them"
        )


def _hold(shelf: Shelf, view: str, hold_ms: int) -> bool:
    """Take the copy's row, which a follower may have for a while, then the lock; False where that fails."""
    run = shelf.connection, shelf.schema
    query(*run, "wait_shortly", ms=WORK_MS)
    try:
        with shelf.connection.transaction():
            _, live = _inline_of(shelf, view)
            query(*run, "lock_copy", view=view, copy=live)
            query(*run, "wait_shortly", ms=hold_ms)
            query(*run, "hold_view", view=view)
    except psycopg.errors.LockNotAvailable:
        return False
    query(*run, "wait_shortly", ms=WORK_MS)
    return True


def _inline_of(shelf: Shelf, view: str) -> tuple[bool, int | None]:
    rows = query(shelf.connection, shelf.schema, "inline_of", view=view)
    if not rows:
        raise UnknownView(view, [name for (name, *_) in query(shelf.connection, shelf.schema, "all_views")])
    inline, live = rows[0]
    return inline, live


def _stand(shelf: Shelf, view: str, number: int, after: int, bound: int) -> None:
    ((_, beyond),) = query(shelf.connection, shelf.schema, "visible_after", after=bound)
    _check_size(view, beyond)
    query(shelf.connection, shelf.schema, "stand", view=view, copy=number, after=after, bound=bound)


def _check_size(view: str, many: int) -> None:
    if many > MOST:
        raise LedgerBusy(
            f"view {view}: {many} events would have to be taken in while appends wait, or an open append "
            "holds back as many; follow the log closer with a projector, see `pledger doctor`, and try again"
        )


def _batch(shelf: Shelf, view: View, where: LiteralString) -> sql.Composed:
    """The relation of an append's own events."""
    topics: sql.Composable = sql.SQL("")
    if view.topics is not None:
        topics = sql.SQL(" AND topic = ANY ({}::text[])").format(sql.Literal(sorted(view.topics)))
    return sql.SQL(
        "(SELECT position, recorded_at, version, schema, stream, topic, data, raw, meta FROM {} WHERE "
        + where
        + "{})"
    ).format(sql.Identifier(shelf.schema, "events"), topics)


def _texts(shelf: Shelf, view: View, number: int, batch: sql.Composed) -> list[str]:
    """The statements of a view as text, with the tables of a copy and an append's events."""
    names = {"batch": batch, **shelf.names(view, number)}
    try:
        with psycopg.ClientCursor(shelf.connection) as cursor:
            return [cursor.mogrify(filled(text, names), {}) for text in view.statements]
    except (psycopg.ProgrammingError, KeyError) as error:
        raise BadInput(
            f"view {view.name} has a statement with parameters: an append cannot keep it"
        ) from error


def _lines(texts: list[str]) -> sql.Composable:
    """Statements one after the other, as they are: values were put in before."""
    joined: Any = "".join(f"{text};\n" for text in texts)
    return sql.SQL(joined)


def _with(shelf: Shelf, name: str, names: dict[str, sql.Composable]) -> sql.Composed:
    return sql.SQL(template(name)).format(
        schema=sql.Identifier(shelf.schema),
        views=sql.Identifier(views_schema(shelf.schema)),
        owner=sql.Identifier(f"{shelf.schema}_owner"),
        **names,
    )
