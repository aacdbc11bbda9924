"""
The claimant: the job or batch, under its claim, on whose behalf work is begun. That work then names the job.

    with claiming_for(Claimant("job/5bd3…", 7)):
        enter_flow_stage(service, strip)        # the strip's `started` names the job, and the token

A worker sets the claimant for the operations that it runs. The next attempt of a job has a greater token, so
it recognises the work that an earlier attempt of the same job left behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple


class Claimant(NamedTuple):
    """A job or batch, by its stream, and the token of its present claim."""

    stream: str
    token: int

    def __str__(self) -> str:
        return f"{self.stream} (token {self.token})"


_of_process: Claimant | None = None
_of_context: ContextVar[tuple[Claimant | None] | None] = ContextVar("ledger_claimant", default=None)


def present_claimant() -> Claimant | None:
    """The claimant of this context, else of this process; None if there is none."""
    found = _of_context.get()
    return _of_process if found is None else found[0]


@contextmanager
def claiming_for(claimant: Claimant | None) -> Iterator[None]:
    """Set the claimant in this context; None: no claimant, even within a job."""
    token = _of_context.set((claimant,))
    try:
        yield
    finally:
        _of_context.reset(token)


def process_claims_for(claimant: Claimant | None) -> None:
    """Set the claimant for all threads of this process, until the next call; threads share no context."""
    global _of_process
    _of_process = claimant
