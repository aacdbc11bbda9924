"""
What the log says of jobs, read by plain Python that knows no code of the project: rows of events, and rules.

    faults = judge(rows, submitted, written)

rows: (position, stream, version, topic, data) of all events, in order. submitted: ids of jobs that somebody
was told are submitted. written: (job, number, token) of each row of the user's table. A list of sentences
comes back, empty where all is right. Nothing here is clever on purpose.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Row = tuple[int, str, int, str, dict[str, Any]]
OVER = {"succeeded", "failed", "cancelled", "completed"}
ENDS_CLAIM = {
    "succeeded": "succeeded", "completed": "completed", "failed": "failed", "computed": "computed",
    "attempt_failed": "waits", "retry_later": "waits", "released": "waits", "lease_expired_requeue": "waits",
    "lease_expired": "failed", "dispatched": "running",
}  # fmt: skip
SAID_UNDER_CLAIM = {"reported", "dispatching"}
NOTES = {"child_added", "commented", "described", "discarded"}


@dataclass
class Life:
    """One job or batch as its events tell. token: of the claim that holds; tokens: of all that ever held."""

    stream: str
    status: str = ""
    version: int = 0
    token: int | None = None
    tokens: set[int] = field(default_factory=set)
    births: int = 0
    parent: str | None = None
    under: int = 0
    round: int = 0
    waits: str = "queued"
    dispatched: dict[str, Any] | None = None
    children: set[str] = field(default_factory=set)
    closes: int = 0
    writing: int = 0


def judge(
    rows: Iterable[Row], submitted: Iterable[str], written: Iterable[tuple[str, str, int]]
) -> list[str]:
    """Everything that is wrong with a log in which all work is said to have come to its end."""
    return Judge().of(rows, submitted, written)


class Judge:
    """Folds a log, and notes what must not be."""

    def __init__(self) -> None:
        self.lives: dict[str, Life] = {}
        self.faults: list[str] = []
        self.members: dict[str, set[str]] = defaultdict(set)
        self.written_by: dict[tuple[str, str], list[int]] = defaultdict(list)

    def of(
        self, rows: Iterable[Row], submitted: Iterable[str], written: Iterable[tuple[str, str, int]]
    ) -> list[str]:
        """The faults."""
        last = 0
        for position, stream, version, topic, data in rows:
            if position <= last:
                self._fault(stream, f"position {position} comes after {last}")
            last = position
            kind, _, word = topic.partition(".")
            if kind in ("job", "batch"):
                self._event(stream, version, word, data)
        for job in submitted:
            if f"job/{job}" not in self.lives:
                self._fault(f"job/{job}", "was submitted and is not there")
        for life in self.lives.values():
            self._end_of(life)
        self._rows(Counter((job, nr) for job, nr, _ in written), written)
        return self.faults

    def _fault(self, stream: str, says: str) -> None:
        self.faults.append(f"{stream}: {says}")

    # Event by event

    def _event(self, stream: str, version: int, word: str, data: dict[str, Any]) -> None:
        life = self.lives.setdefault(stream, Life(stream))
        if version != life.version + 1:
            self._fault(stream, f"version {version} comes after {life.version}")
        life.version = version
        if word in ("created", "queued"):
            self._born(life, data)
        elif not life.births:
            self._fault(stream, f"{word} before it was there")
        elif word == "started":
            self._started(life, version, data)
        elif word == "late_result":
            if data["token"] not in life.tokens or data["token"] == life.token:
                self._fault(stream, f"late result with token {data['token']}, held is {life.token}")
        elif word in NOTES:
            if word == "child_added":
                life.children.add(data["child"])
        elif word == "cancelled":
            self._moved(life, "cancelled")
        elif word == "redriven":
            life.status, life.token = "queued", None
        elif word == "queue_stall_requeue":
            if life.status not in ("queued", "computed"):
                self._fault(stream, f"offered again while {life.status}")
        else:
            self._under_claim(life, word, data)

    def _born(self, life: Life, data: dict[str, Any]) -> None:
        life.births += 1
        if life.births > 1:
            self._fault(life.stream, "was created twice")
        life.status = "queued"
        kind, job, *_ = life.stream.split("/")
        if kind == "batch":
            life.parent, life.under = f"job/{job}", data["under"]
            self.members[life.parent].add(life.stream)
        elif data.get("parent"):
            life.parent = f"job/{data['parent']}"

    def _started(self, life: Life, version: int, data: dict[str, Any]) -> None:
        if life.token is not None:
            self._fault(life.stream, f"claim {data['token']} began while {life.token} held: two owners")
        if life.status not in ("queued", "computed"):
            self._fault(life.stream, f"claimed while {life.status}")
        if data["token"] != version:
            self._fault(life.stream, f"claim {data['token']} is recorded as version {version}")
        life.writing = data["token"] if life.status == "computed" else 0
        life.waits = life.status
        life.status, life.token = "running", data["token"]
        life.tokens.add(data["token"])

    def _under_claim(self, life: Life, word: str, data: dict[str, Any]) -> None:
        token = data.get("token")
        closing = token is None and life.dispatched is not None and word in ("succeeded", "failed")
        if closing:
            self._closed(life, word, data)
        elif token is None or token != life.token:
            self._fault(life.stream, f"{word} with token {token}, held is {life.token}")
        if word == "dispatching":
            life.round = data["round"]
        if word == "dispatched":
            life.dispatched = data
            life.children |= set(data["children"])
        if word not in SAID_UNDER_CLAIM:
            to = ENDS_CLAIM[word]
            self._moved(life, life.waits if to == "waits" else to)

    def _moved(self, life: Life, to: str) -> None:
        if life.status in OVER:
            self._fault(life.stream, f"came to {to} after it was {life.status}")
        life.status, life.token = to, None
        if to != "running":
            life.dispatched = None

    # Parents

    def _set_of(self, life: Life) -> list[str]:
        batches = {m for m in self.members[life.stream] if self.lives[m].under == life.round}
        return [*batches, *(f"job/{child}" for child in life.children)]

    def _closed(self, life: Life, word: str, data: dict[str, Any]) -> None:
        """A close is right where the set, as it is at this place of the log, says so."""
        life.closes += 1
        assert life.dispatched is not None
        members = self._set_of(life)
        expected = life.dispatched["batches"] + len(life.children)
        if len(members) != expected:
            self._fault(life.stream, f"closed with {len(members)} members of {expected}")
        ends = Counter(self.lives[m].status if m in self.lives else "missing" for m in members)
        good, failed, total = ends["completed"] + ends["succeeded"], ends["failed"], len(members)
        over = good + failed + ends["cancelled"]
        too_many = bool(failed) and failed / total >= life.dispatched["failure_ratio"]
        if word == "succeeded":
            if over != total or too_many or not good:
                self._fault(life.stream, f"succeeded, but its set is {dict(ends)}")
            if (data["progress_current"], data["progress_total"], data["failed"]) != (good, total, failed):
                self._fault(
                    life.stream,
                    f"counted {data['progress_current']} of {data['progress_total']}: {dict(ends)}",
                )
        elif not too_many and (good or over != total):
            self._fault(life.stream, f"failed by its set, which is {dict(ends)}")

    # At the end

    def _end_of(self, life: Life) -> None:
        if life.status not in OVER:
            self._fault(life.stream, f"never came to its end: {life.status}, version {life.version}")
        if life.closes > 1:
            self._fault(life.stream, f"was closed {life.closes} times")

    def _rows(self, counted: Counter[tuple[str, str]], written: Iterable[tuple[str, str, int]]) -> None:
        """The rows of write steps: one for each batch completed by one, with the token of its claim."""
        tokens = {(job, nr): token for job, nr, token in written}
        for (job, nr), many in counted.items():
            life = self.lives.get(f"batch/{job}/{nr}")
            if many != 1:
                self._fault(f"batch/{job}/{nr}", f"its rows were written {many} times")
            if life is None or life.status != "completed":
                self._fault(f"batch/{job}/{nr}", "its rows are there, and it is not completed")
            elif tokens[job, nr] != life.writing:
                self._fault(life.stream, f"its rows are of claim {tokens[job, nr]}, not of {life.writing}")
        for stream, life in self.lives.items():
            if stream.startswith("batch/") and life.status == "completed" and life.writing:
                job, _, nr = stream.removeprefix("batch/").partition("/")
                if (job, nr) not in counted:
                    self._fault(stream, "is completed, and its rows are not there")
