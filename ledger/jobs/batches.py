"""
Batches ended in groups, by writers that take many at once: claim and end of each in one append of them all.

    done = Batches(log, "writer-3").complete(job, {"17": {"rows": 20}, "18": {"rows": 31}})

For a writer that gathers the results of many batches and stores their rows together. No row is shared: the
append locks the heads of its own batches only, and the fan-in counts them afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from .. import canon
from ..append import Append, Body, body_of
from ..errors import BadInput, StreamConflict
from ..expected import Exact
from ..store import reading
from ..store.joining import Joined
from ..store.ledger import Ledger
from .batch import BatchCompleted, BatchStarted, BatchStatus, OpenBatch

MOST: Final = 1000
"""Batches in one append, at most: a longer one would hold up every reader of the log."""
_STEP: Final = {"queued": BatchStatus.RUNNING, "computed": BatchStatus.WRITING}


class Done(NamedTuple):
    """What a group came to: the numbers that were completed here, and the statuses of those that were not.

    A status of such a batch: `running`, `completed`, …: somebody else has it; None: there is no such batch.
    """

    completed: list[str]
    others: dict[str, str | None]


class Batches:
    """Ends batches that wait, many in one append. writer: who does it, as the worker of each claim."""

    def __init__(self, ledger: Ledger, writer: str) -> None:
        self.ledger, self.writer = ledger, writer
        self._claims: dict[tuple[str, int, int], Body] = {}

    def complete(self, job: str, results: Mapping[str, Mapping[str, Any]]) -> Done:
        """Complete batches of a job: their numbers, and what came of each; in pieces of at most 1000.

        Those that somebody else has, or that are over, are left, and named.
        """
        done = Done([], {})
        for piece in _pieces(results):
            self._piece(job, piece, done)
        return done

    def join(self, joined: Joined, job: str, results: Mapping[str, Mapping[str, Any]]) -> None:
        """The same at the end of a joined transaction, together with the rows of the batches; all or none.

        At most 1000. Raises BadInput where one does not wait; at the end of the block StreamConflict where
        somebody else came first: then nothing is stored, and the block may be run again without that one.
        """
        if len(results) > MOST:
            raise BadInput(f"{len(results)} batches are too many for one append: give {MOST} at most")
        appends, others = self._appends(job, results)
        if others:
            nr, status = next(iter(others.items()))
            raise BadInput(
                f"batch {nr} of job {job} is {status or 'not there'}: only one that waits is completed"
            )
        for append in appends.values():
            joined.add(append)

    def _piece(self, job: str, results: Mapping[str, Mapping[str, Any]], done: Done) -> None:
        left = dict(results)
        while left:
            appends, others = self._appends(job, left)
            done.others.update(others)
            left = {nr: left[nr] for nr in appends}
            if not left:
                return
            try:
                self.ledger.append_all(list(appends.values()))
            except StreamConflict:
                continue  # look again: somebody took one of them meanwhile
            done.completed.extend(left)
            return

    def _appends(
        self, job: str, results: Mapping[str, Mapping[str, Any]]
    ) -> tuple[dict[str, Append], dict[str, str | None]]:
        """The appends of those that wait, and the statuses of the others, by number."""
        first = OpenBatch.name_of(job, "")
        names = {first + nr if nr.isdecimal() else OpenBatch.name_of(job, nr): nr for nr in results}
        appends, others = dict[str, Append](), dict[str, str | None](dict.fromkeys(results))
        for stream, version, status, attempt in self._heads(names):
            nr = names[stream]
            others[nr] = status
            if status in _STEP:
                del others[nr]
                events = [self._claim(status, version, attempt), _ended(version + 1, results[nr])]
                appends[nr] = Append(stream, events, Exact(version), status=BatchStatus.COMPLETED.value)
        return appends, others

    def _claim(self, status: str, version: int, attempt: int) -> Body:
        """The claim of a batch: of most batches the same text."""
        known = (status, version, attempt)
        if known not in self._claims:
            claim = BatchStarted(
                worker=self.writer, token=version + 1, attempt=attempt + 1, step=_STEP[status]
            )
            if len(self._claims) >= MOST:
                self._claims.clear()
            self._claims[known] = body_of(claim)
        return self._claims[known]

    def _heads(self, names: Collection[str]) -> Iterator[tuple[str, int, str | None, int]]:
        """Stream, version, status and attempt of each that is there; opened where its head does not know."""
        parameters = {"streams": list(names), "state_schema": OpenBatch.state_schema()}
        with self.ledger.reader() as connection:
            rows = reading.query(connection, self.ledger.schema, "batches_at", **parameters)
        unknown = []
        for stream, version, status, attempt in rows:
            if status is None or (attempt is None and status in _STEP):
                unknown.append(stream)
            else:
                yield stream, version, status, attempt or 0
        if unknown:
            for batch in self.ledger.load_each(OpenBatch(*name.split("/")[1:]) for name in unknown):
                yield batch.name, batch.version, batch.state.status, batch.state.attempt


def _ended(token: int, result: Mapping[str, Any]) -> Body:
    """The fact of an end; a plain dict is written as it is, which takes a fifth of the time."""
    if type(result) is not dict:
        return body_of(BatchCompleted(token=token, result=dict(result)))
    text = canon.body({"token": token, "result": result})
    return Body(BatchCompleted.topic, BatchCompleted.schema_number, text)


def _pieces(results: Mapping[str, Mapping[str, Any]]) -> Iterator[dict[str, Mapping[str, Any]]]:
    numbers = list(results)
    for first in range(0, len(numbers), MOST):
        yield {nr: results[nr] for nr in numbers[first : first + MOST]}
