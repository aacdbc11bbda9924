"""The libraries of the extra `[prefect]`: imported late; a missing one is reported with the extra's name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

EXTRA = frozenset({"prefect", "prefect_sqlalchemy", "sqlalchemy"})


@contextmanager
def needs_extra() -> Iterator[None]:
    """Imports in this block need the extra. Raises ModuleNotFoundError with the extra's name."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXTRA:
            raise
        raise ModuleNotFoundError(
            f"{missing} is not installed, and consumers.prefect_flows needs it: "
            "install pipeline-ledger again with its extra [prefect]",
            name=missing,
        ) from None
