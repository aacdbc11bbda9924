"""
Batches completed in groups: one append claims and ends all batches of a group.

    done = Batches(log, "writer-3").complete(job, {"17": {"rows": 20}, "18": {"rows": 31}})

For a writer that gathers the results of many batches and stores their rows together. Appends share no row:
each locks the heads of its own batches only, and the fan-in counts them afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from ..domain import canonical_json
from ..errors import BadInput, StreamConflict
from ..log.append import Append, Body, Exact, body_of
from ..log.join import Joined
from ..log.ledger import Ledger
from ..log.sql import Statements
from .batch import BatchCompleted, BatchStarted, BatchStatus, OpenBatch

SQL = Statements(__package__, "batches")
MAX_BATCHES: Final = 1000
"""Maximum number of batches in one append: a larger one would delay every reader of the log."""
_STEP: Final = {"queued": BatchStatus.RUNNING, "computed": BatchStatus.WRITING}


class Done(NamedTuple):
    """The result of a group: the numbers of the batches completed here, and the statuses of the others.

    A status `running`, `completed`, …: another worker has the batch; None: there is no such batch.
    """

    completed: list[str]
    others: dict[str, str | None]


class Batches:
    """Ends waiting batches, many in one append. writer: the worker named in each claim."""

    def __init__(self, ledger: Ledger, writer: str) -> None:
        self.ledger, self.writer = ledger, writer
        self._claims: dict[tuple[str, int, int], Body] = {}

    def complete(self, job: str, results: Mapping[str, Mapping[str, Any]]) -> Done:
        """Complete batches of a job: the result of each by its number; at most 1000 in one append.

        Batches that another worker has, or that are over, are not changed; their statuses are returned.
        """
        done = Done([], {})
        for piece in _pieces(results):
            self._piece(job, piece, done)
        return done

    def join(self, joined: Joined, job: str, results: Mapping[str, Mapping[str, Any]]) -> None:
        """The same at the end of a joined transaction, together with the rows of the batches; all or nothing.

        At most 1000. Raises BadInput where a batch does not wait; at the end of the block StreamConflict if
        another writer came first: then nothing is stored, and the block may be run again without that batch.
        """
        if len(results) > MAX_BATCHES:
            raise BadInput(f"{len(results)} batches are too many for one append: give at most {MAX_BATCHES}")
        appends, others = self._appends(job, results)
        if others:
            nr, status = next(iter(others.items()))
            raise BadInput(
                f"batch {nr} of job {job} is {status or 'not there'}: only a waiting batch can be completed"
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
                continue  # read again: another worker has taken one of them
            done.completed.extend(left)
            return

    def _appends(
        self, job: str, results: Mapping[str, Mapping[str, Any]]
    ) -> tuple[dict[str, Append], dict[str, str | None]]:
        """The appends of the waiting batches, and the statuses of the others, by number."""
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
        """The claim of a batch, cached: most batches have the same text."""
        known = (status, version, attempt)
        if known not in self._claims:
            claim = BatchStarted(
                worker=self.writer, token=version + 1, attempt=attempt + 1, step=_STEP[status]
            )
            if len(self._claims) >= MAX_BATCHES:
                self._claims.clear()
            self._claims[known] = body_of(claim)
        return self._claims[known]

    def _heads(self, names: Collection[str]) -> Iterator[tuple[str, int, str | None, int]]:
        """Stream, version, status and attempt of each existing one; opened where its head lacks them."""
        rows = self.ledger.query(SQL.batches_at, streams=list(names), state_schema=OpenBatch.state_schema())
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
    """The fact of an end; writing a plain dict takes a fifth of the time of a model."""
    if type(result) is not dict:
        return body_of(BatchCompleted(token=token, result=dict(result)))
    text = canonical_json.body({"token": token, "result": result})
    return Body(BatchCompleted.topic, BatchCompleted.schema_number, text)


def _pieces(results: Mapping[str, Mapping[str, Any]]) -> Iterator[dict[str, Mapping[str, Any]]]:
    numbers = list(results)
    for first in range(0, len(numbers), MAX_BATCHES):
        yield {nr: results[nr] for nr in numbers[first : first + MAX_BATCHES]}
