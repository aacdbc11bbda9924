"""The libraries of the extra `[prefect]`: imported late, and missed with a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

EXTRA = frozenset({"prefect", "prefect_sqlalchemy", "sqlalchemy"})


@contextmanager
def needs_extra() -> Iterator[None]:
    """What the block imports comes with the extra. Raises ModuleNotFoundError, which names it."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXTRA:
            raise
        raise ModuleNotFoundError(
            f"{missing} is not installed, and consumers.prefect_flows needs it: "
            "pip install 'pipeline-ledger[prefect]'",
            name=missing,
        ) from None
