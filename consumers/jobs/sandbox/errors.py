"""The error of an operation as an outcome: clean text, however strange the error is (spec S1-25, S1-29)."""

from __future__ import annotations

import traceback
from typing import Final

from ledger.errors import NoPermission, ReadOnly, ServerUnavailable, StorageFull

from ..messages import Failed

TRACE: Final = 4000
"""Characters of a traceback that are kept: its end."""
TEXT: Final = 100_000
"""Characters of an error's text that are kept; more belongs in a file."""
CODE: Final = 200
"""Characters of an error's class name that are kept."""
_STATES: Final = ("08", "40001", "40P01", "57P01", "57P02", "57P03", "57P05")
"""SQLSTATE classes and codes of connection errors, serialization failures, deadlocks, server shutdown."""
_DRIVERS: Final = ("psycopg", "psycopg2", "sqlalchemy", "asyncpg")


def failure_of(error: BaseException, stream: str, token: int) -> Failed:
    """The failure of a task that raised this error."""
    if isinstance(error, MemoryError):  # its frames reference what filled the memory
        traceback.clear_frames(error.__traceback__)
    return Failed(
        stream,
        token,
        error_code=clean(type(error).__name__)[:CODE],
        message=_text(error),
        details={"traceback": _trace(error)},
        transient=is_transient(error),
    )


def is_transient(error: BaseException) -> bool:
    """Whether the infrastructure caused it: serialization, deadlock, a dropped connection (spec S1-29).

    Also if the driver's error is wrapped in `orig`, as SQLAlchemy does.
    """
    if isinstance(error, ServerUnavailable):
        return not isinstance(error, NoPermission | ReadOnly | StorageFull)
    inner = getattr(error, "orig", None)
    if isinstance(inner, BaseException) and inner is not error:
        return is_transient(inner)
    if type(error).__module__.partition(".")[0] not in _DRIVERS:
        return False
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if state is None:  # the driver itself says so: the connection ended
        return any(kind.__name__ == "OperationalError" for kind in type(error).__mro__)
    return str(state).startswith(_STATES)


def clean(text: str) -> str:
    """A text that PostgreSQL can store: without NUL and lone surrogates."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def _text(error: BaseException) -> str:
    try:
        text = str(error)
    except BaseException as worse:  # its __str__ is the operation's code too
        return f"no text: its __str__ raised {clean(type(worse).__name__)[:CODE]}"
    more = len(text) - TEXT
    return clean(text[:TEXT]) + (f"… ({more} characters more)" if more > 0 else "")


def _trace(error: BaseException) -> str:
    try:
        trace = error.__traceback__
        inner = trace.tb_next if trace is not None and trace.tb_next is not None else trace  # not the child's
        return clean("".join(traceback.format_exception(type(error), error, inner))[-TRACE:])
    except BaseException as worse:
        return f"no traceback: {clean(type(worse).__name__)[:CODE]}"
