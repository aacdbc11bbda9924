"""Facts of jobs and batches: their topics are permanent, and they are read as they were recorded."""

from __future__ import annotations

from random import Random

import pytest

from ledger.domain.known import KNOWN
from ledger.domain.topics import read_event
from ledger.jobs import OpenBatch, OpenJob
from ledger.jobs.facts import WorkFact
from ledger.log.append import body_of
from projections.jobs.job_list import JobList
from projections.shipped import load
from tests.jobs.history import history

BOTH = (
    "attempt_failed", "cancelled", "discarded", "failed", "late_result", "lease_expired",
    "lease_expired_requeue", "queue_stall_requeue", "redriven", "released", "reported", "retry_later",
    "started",
)  # fmt: skip
FACTS = {
    "job": {
        *BOTH,
        "child_added",
        "commented",
        "created",
        "deleted",
        "described",
        "dispatched",
        "dispatching",
        "recounted",
        "reopened",
        "succeeded",
    },
    "batch": {*BOTH, "completed", "computed", "queued"},
}


@pytest.mark.parametrize("category", FACTS)
def test_topics_are_permanent(category: str) -> None:
    """A topic that is missing here is new: add it; one that is gone made old ledgers unreadable."""
    known = {
        topic.partition(".")[2] for topic, kind in KNOWN.events.items() if topic.startswith(f"{category}.")
    }
    assert known == FACTS[category]
    assert all(issubclass(KNOWN.events[f"{category}.{word}"], WorkFact) for word in known)


def test_every_fact_is_read_as_it_was_recorded() -> None:
    seen = set()
    for seed in range(4):
        for work in history(Random(seed), jobs=30):
            for event in work.news:
                body = body_of(event)
                assert read_event(body.topic, body.schema, body.data or "") == event
                seen.add(event.topic)
            work.news.clear()
    assert seen == {f"{category}.{word}" for category, words in FACTS.items() for word in words}


def test_a_status_in_a_fact_is_one_of_the_machine() -> None:
    for kind in (OpenJob, OpenBatch):
        machine = {to for tos in kind.MOVES.table.values() for to in tos}
        leads = {KNOWN.events[f"{kind.CATEGORY}.{word}"].to for word in FACTS[kind.CATEGORY]} - {None}
        assert leads <= machine
        assert {*kind.RUNNING, *kind.WAITING} <= machine


@pytest.mark.parametrize("view", [JobList.name, "work"])
def test_views_follow_topics_that_there_are(view: str) -> None:
    """A misspelt topic would never come."""
    load()
    followed = {topic for topic in KNOWN.views[view].topics or () if topic.split(".")[0] in FACTS}
    whole = KNOWN.views[view].categories or ()
    followed |= {f"{category}.{word}" for category in whole for word in FACTS[category]}
    assert followed <= set(KNOWN.events)
    moving = {f"job.{word}" for word in FACTS["job"] if KNOWN.events[f"job.{word}"].to is not None}
    assert moving - {"job.queue_stall_requeue"} <= followed
