"""
Views that appends keep: what an append does to one, and how a view changes between append and follower.

Every append of an inline view holds the view's lock, shared and to its end, looks only then whether the
view is inline and which copy is live, and runs the view's statements on its own events. Whoever changes any
of that holds the lock alone (`locked_view`): then every visible event is applied, and every event that is not
yet visible belongs to an append that waits and will check again. So no event is missed, and none is applied
twice.
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
from ledger.log.install import views_schema
from ledger.log.sql import Statement, Statements

from .apply import Applier
from .copies import Copies
from .refold import learn_statuses
from .view import View, filled

SQL = Statements(__package__, "inline", "copies")


HOLD_MS: Final = (100, 200, 400, 600)
"""How long one try waits for the lock of a view: appends wait behind a waiting try."""
WORK_MS: Final = 500
"""How long to wait for any other lock while that one is held."""
MOST: Final = 20_000
"""Maximum events that are applied while appends wait, or that may be beyond the bound."""


@contextmanager
def locked_view(copies: Copies, view: str, timeout: float = 60.0) -> Iterator[bool]:
    """A transaction in which no append writes the view, nor commits if the view is inline; yields whether it
    is.

    Appends wait meanwhile, so be brief: apply to a copy what they have written (`apply_visible`), switch,
    end. The changes in the block count when it ends. Raises LedgerBusy if an open append prevents the lock
    for `timeout` seconds, UnknownView if the view is not registered.
    """
    deadline = time.monotonic() + timeout
    for attempt in count():
        hold_ms = HOLD_MS[min(attempt, len(HOLD_MS) - 1)]
        with copies.connection.transaction():
            if _hold(copies, view, hold_ms):
                yield _inline_of(copies, view)[0]
                return
        if time.monotonic() > deadline:
            raise LedgerBusy(
                f"view {view} stays locked by an append or a projector; see `pledger doctor`, and try again"
            )
        time.sleep(hold_ms / 1000)  # for the appends that waited


def apply_visible(copies: Copies, view: View, number: int, bound: int) -> None:
    """Apply every visible event to a copy; in `locked_view`, for a view that is or becomes inline.

    bound: the bound of the log, read before the lock. If events beyond it are applied too, the copy's row
    lists them, so that a follower can continue. Raises LedgerBusy if there are more than appends should wait
    for, NewStatuses.
    """
    ((after, _),) = copies.run(SQL.stands_at, view=view.name, copy=number)
    ((last, many),) = copies.run(SQL.visible_after, after=after)
    _check_size(view.name, many)
    if many:
        copy = copies.copy(view, number)
        assert copy is not None
        applier = Applier(copies, view, copy)
        applier.live = False
        applier.apply(after, last, 0)
    _set_position(copies, view.name, number, after, bound)


def record_position(copies: Copies, view: str, number: int, bound: int) -> None:
    """Record the position of the copy that appends kept; in `locked_view`. Raises as `apply_visible`."""
    ((after, _),) = copies.run(SQL.stands_at, view=view, copy=number)
    _set_position(copies, view, number, after, bound)


def learn(copies: Copies, view: View) -> int:
    """Fold again the streams of an inline view whose topics were announced since; returns their number.

    Appends wait for that. Usually there are none: a domain is announced before its first event. If an append
    holds the view now, nothing is done: call it again.
    """
    if copies.run(SQL.news_of_statuses, view=view.name) != [(True,)]:
        return 0
    bound = bound_of(copies)
    try:
        with locked_view(copies, view.name, timeout=0) as inline:
            _, live = _inline_of(copies, view.name)
            return _learned(copies, view, live, bound) if inline and live is not None else 0
    except LedgerBusy:
        return 0


def _learned(copies: Copies, view: View, live: int, bound: int) -> int:
    """Fold again; this removes rows beyond the bound, which must be applied again."""
    record_position(copies, view.name, live, bound)
    many = learn_statuses(copies, view, live)
    apply_visible(copies, view, live, bound)
    copies.run(SQL.set_inline, view=view.name, inline=True)
    return many


def bound_of(copies: Copies) -> int:
    """The bound of the log; read it before the view is locked."""
    ((_, _, bound),) = copies.run(SQL.next_batch, after=2**62, limit=1, known=-1)
    return int(bound)


def make_ready(copies: Copies, view: View, number: int) -> None:
    """Store with a copy what an append does to it, so that an inline view can switch to it.

    Raises BadInput for a view that no append can keep.
    """
    check(view)
    texts = _texts(copies, view, number, _batch(copies, view, "position BETWEEN $1 AND $2"))
    copies.run(SQL.keep_effect, view=view.name, copy=number, effect=texts)


def make_effect(copies: Copies, view: View, number: int) -> None:
    """Create the function that appends call, with cached plans for one copy; another copy costs them more."""
    make_ready(copies, view, number)
    ((high, low),) = copies.run(SQL.key_of_view, view=view.name)
    one = _texts(copies, view, number, _batch(copies, view, "position = p_first"))
    many = _texts(copies, view, number, _batch(copies, view, "position BETWEEN p_first AND p_last"))
    body = SQL.keeper_body.named(
        schema=sql.Identifier(copies.schema), view=sql.Literal(view.name), copy=sql.Literal(number),
        high=sql.Literal(high), low=sql.Literal(low), one=_lines(one), many=_lines(many),
    )  # fmt: skip
    for statement in (SQL.make_keeper, SQL.open_keeper):
        _execute(copies, statement, view, body=sql.Literal(body.as_string(None)))


def try_effect(copies: Copies, view: View) -> None:
    """Do what an append would do, on no events. Raises ViewFailed if that fails."""
    try:
        with copies.connection.transaction():
            _execute(copies, SQL.call_keeper, view)
    except psycopg.Error as error:
        message = error.diag.message_primary or str(error)
        raise ViewFailed(view.name, f"{message}, when an append runs it") from error


def routine(view: str) -> str:
    """The name of the function that appends call for a view, in the schema of views."""
    return f"keep_{view}"


def effect_of(view: str) -> str:
    """The name under which it is attached, which the error of a refused append contains."""
    return f"view {view}"


def routine_with_schema(schema: str, view: str) -> str:
    """The function, as `attach_effect` expects it."""
    return sql.Identifier(views_schema(schema), routine(view)).as_string(None)


def check(view: View) -> None:
    """Refuse a view that no append can keep. Raises BadInput."""
    if not view.is_sql:
        raise BadInput(f"appends cannot keep view {view.name}: it needs Python for its batches")
    if not view.inline:
        raise BadInput(
            f"appends cannot keep view {view.name}: it does not declare `inline = True`, that its statements "
            "give the same result in any order of appends"
        )


def _hold(copies: Copies, view: str, hold_ms: int) -> bool:
    """Lock the copy's row, which a follower may hold for a while, then the view; False if that fails."""
    copies.run(SQL.wait_shortly, ms=WORK_MS)
    try:
        with copies.connection.transaction():
            _, live = _inline_of(copies, view)
            copies.run(SQL.lock_copy, view=view, copy=live)
            copies.run(SQL.wait_shortly, ms=hold_ms)
            copies.run(SQL.hold_view, view=view)
    except psycopg.errors.LockNotAvailable:
        return False
    copies.run(SQL.wait_shortly, ms=WORK_MS)
    return True


def _inline_of(copies: Copies, view: str) -> tuple[bool, int | None]:
    rows = copies.run(SQL.inline_of, view=view)
    if not rows:
        raise UnknownView(view, [name for (name, *_) in copies.run(SQL.all_views)])
    inline, live = rows[0]
    return inline, live


def _set_position(copies: Copies, view: str, number: int, after: int, bound: int) -> None:
    ((_, beyond),) = copies.run(SQL.visible_after, after=bound)
    _check_size(view, beyond)
    copies.run(SQL.stand, view=view, copy=number, after=after, bound=bound)


def _check_size(view: str, many: int) -> None:
    if many > MOST:
        raise LedgerBusy(
            f"view {view}: {many} events are not applied yet, too many to apply while appends wait: run a "
            "projector until it has caught up, see `pledger doctor` for appends that stay open, and try again"
        )


def _batch(copies: Copies, view: View, where: LiteralString) -> sql.Composed:
    """The relation of an append's own events."""
    topics: sql.Composable = sql.SQL("")
    if view.wanted is not None:
        topics = sql.SQL(" AND topic = ANY ({}::text[])").format(sql.Literal(view.wanted))
    return sql.SQL(
        "(SELECT position, recorded_at, version, schema, stream, topic, data, raw, meta FROM {} WHERE "
        + where
        + "{})"
    ).format(sql.Identifier(copies.schema, "events"), topics)


def _texts(copies: Copies, view: View, number: int, batch: sql.Composed) -> list[str]:
    """The statements of a view as text, with the tables of a copy and an append's events."""
    names = {"batch": batch, **copies.names(view, number)}
    try:
        with psycopg.ClientCursor(copies.connection) as cursor:
            return [cursor.mogrify(filled(text, names), {}) for text in view.statements]
    except (psycopg.ProgrammingError, KeyError) as error:
        raise BadInput(f"appends cannot keep view {view.name}: it has a statement with parameters") from error


def _lines(texts: list[str]) -> sql.Composable:
    """Statements one after the other, with their values already filled in."""
    joined: Any = "".join(f"{text};\n" for text in texts)
    return sql.SQL(joined)


def _execute(copies: Copies, statement: Statement, view: View, **names: sql.Composable) -> None:
    """Run a statement about the function that appends call for a view."""
    names |= {"routine": sql.Identifier(routine(view.name)), "schema": sql.Identifier(copies.schema)}
    names |= {"views": sql.Identifier(views_schema(copies.schema))}
    copies.execute(statement, owner=sql.Identifier(f"{copies.schema}_owner"), **names)
