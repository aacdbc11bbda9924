"""An oracle for parents: from the log alone, in plain Python, which rounds were to be closed, and how."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ledger import Recorded


class Verdict(NamedTuple):
    """How a round was to be closed: at which position that was clear, and what the close says."""

    position: int
    topic: str
    failed: int
    total: int
    good: int


@dataclass
class _Parent:
    status: str = "none"
    round: int = 0
    reopened: int = 0
    total: int = 0
    ratio: float = 1.0
    waits: bool = False
    children: set[str] = field(default_factory=set)

    @property
    def nth(self) -> str:
        """Its round, and how often it was reopened."""
        return f"{self.round}:{self.reopened}" if self.reopened else str(self.round)


def _good(end: str) -> bool:
    return end in ("completed", "succeeded")


class Oracle:
    """Reads a log once; verdicts: by job and round; closes: the facts that closed them; cancels: of jobs."""

    def __init__(self, events: Iterable[Recorded]) -> None:
        self.verdicts: dict[tuple[str, str], Verdict] = {}
        self.closes: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
        self.cancels: dict[str, int] = {}
        self.ends: dict[str, dict[str, str]] = defaultdict(dict)  # by job: batch number or child -> how
        self.parents: dict[str, _Parent] = defaultdict(_Parent)
        for event in events:
            self._see(event)

    def _see(self, event: Recorded) -> None:
        category, *key = event.stream.split("/")
        if category not in ("job", "batch"):
            return
        word, data = event.topic.split(".")[1], json.loads(event.data or "{}")
        if category == "batch":
            self._member(key[0], key[1], word)
        else:
            self._job(key[0], word, data, event.position)
            for parent, one in list(self.parents.items()):
                if key[0] in one.children:
                    self._member(parent, key[0], word)
        for job in list(self.parents):
            self._judge(job, event.position)

    def _member(self, job: str, member: str, word: str) -> None:
        if word in ("completed", "succeeded", "failed", "cancelled", "lease_expired"):
            self.ends[job][member] = "failed" if word == "lease_expired" else word
        elif word in ("redriven", "reopened"):
            self.ends[job].pop(member, None)

    def _job(self, job: str, word: str, data: dict[str, Any], position: int) -> None:
        one = self.parents[job]
        match word:
            case "dispatching":
                one.round, one.waits = data["round"], False
            case "dispatched":
                one.waits, one.total, one.ratio = True, data["batches"], data["failure_ratio"]
                one.children |= set(data["children"])
            case "child_added":
                one.children.add(data["child"])
            case "succeeded" | "failed":
                if data.get("via"):
                    self.closes[job, one.nth].append({"topic": event_topic(word), **data})
                one.waits = False
            case "cancelled":
                one.waits = False
                self.cancels[job] = position
            case "reopened":
                one.waits, one.reopened = True, data["nth"]
                ends = self.ends[job]
                self.ends[job] = {m: e for m, e in ends.items() if m in one.children or e == "completed"}
            case "redriven":
                one.waits, one.children = False, set()
            case "released" | "attempt_failed" | "retry_later" | "lease_expired_requeue" | "lease_expired":
                one.waits = False

    def _judge(self, job: str, position: int) -> None:
        one = self.parents[job]
        if not one.waits or (job, one.nth) in self.verdicts:
            return
        prefix = "" if one.round == 1 else f"{one.round}."
        members = [f"{prefix}{nr}" for nr in range(1, one.total + 1)] + sorted(one.children)
        ends = [self.ends[job].get(member) for member in members]
        failed, good, total = ends.count("failed"), sum(_good(e) for e in ends if e), len(members)
        many = failed > 0 and failed / total >= one.ratio
        if many or None not in ends:
            topic = "job.succeeded" if good and not many else "job.failed"
            self.verdicts[job, one.nth] = Verdict(position, topic, failed, total, good)

    def check(self) -> None:
        """Every round with a verdict was closed once, and so; or its job was cancelled after it was clear."""
        for key, closes in self.closes.items():
            assert len(closes) == 1, (key, closes)
            assert key in self.verdicts, (key, closes)
        for key, verdict in self.verdicts.items():
            if not self.closes.get(key):
                assert self.cancels.get(key[0], 0) > verdict.position, (key, verdict)
                continue
            (close,) = self.closes[key]
            assert close["topic"] == verdict.topic, (close, verdict)
            if verdict.topic == "job.succeeded":
                said = (close["failed"], close["progress_total"], close["progress_current"])
                assert said == (verdict.failed, verdict.total, verdict.good), (close, verdict)
            else:
                details = close["details"]
                said = (details["failed_children_count"], details["dispatched_total"])
                assert said == (verdict.failed, verdict.total), (close, verdict)
                assert (close["error_code"] == "AllChildrenFailed") == (
                    verdict.good == 0 and _all(verdict, close)
                )


def _all(verdict: Verdict, close: dict[str, Any]) -> bool:
    return close["reason"] == "all_children_failed"


def event_topic(word: str) -> str:
    return f"job.{word}"
