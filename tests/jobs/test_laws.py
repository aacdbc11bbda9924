"""Laws of jobs and batches, over any sequence of decisions: one fold, one claim, ends that hold, guards."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import GuardFailed, Ledger, MoveNotAllowed
from ledger.domain.state import dump, load
from ledger.domain.topics import read_event
from ledger.errors import ClaimLost
from ledger.jobs import OpenBatch, OpenJob
from ledger.jobs.work import OpenWork
from ledger.log.append import append_of, body_of
from projections.verify import verify
from projections.verify.difference import Difference
from tests.jobs.history import DECISIONS, OFTEN, create, decide, history, job_id, offered, record, settled

Work = OpenWork[Any, Any]
START = datetime(2026, 2, 28, 23, 0, tzinfo=UTC)
lives = st.tuples(
    st.integers(0, 2**32), st.booleans(), st.lists(st.sampled_from(sorted({*DECISIONS})), max_size=30)
)


def offer(chance: Random, as_batch: bool) -> Work:
    """A job or a batch that was offered."""
    if as_batch:
        batch = OpenBatch(job_id(chance), "1")
        batch.queue(1, "embed", **offered(chance))
        return batch
    job = OpenJob(job_id(chance))
    create(chance, job)
    return job


def again(work: Work) -> Work:
    """A fresh stream object of the same key."""
    return type(work)(*work.key)


class Watch:
    """What is seen of a stream, fact by fact: who has a claim, and which ends it came to."""

    def __init__(self) -> None:
        self.tokens: set[int] = set()
        self.before: Any = None

    def see(self, work: Work, topic: str) -> None:
        """A fact was applied; the stream is as it is now."""
        state, before = work.state, self.before
        claimed = topic.endswith(".started")
        if claimed:
            assert state.token not in self.tokens, "a token is used twice"
            assert before is None or before.token is None, "two claims at once"
            assert all(state.token > token for token in self.tokens), "tokens grow"
            self.tokens.add(state.token)
        elif state.token is not None:
            assert before.token == state.token, "a claim without a fact that began it"
        assert state.token is None or state.status in work.RUNNING
        if before is not None and before.finished_at is not None and state.status != before.status:
            assert before.status == "failed", "an end was left"
            assert topic.endswith((".redriven", ".reopened")), "an end was left"
        assert (state.finished_at is not None) == (state.status in ENDS)
        assert state.discarded <= (state.status == "failed")
        self.before = state


ENDS = {"succeeded", "completed", "failed", "cancelled"}


def lived(seed: int, as_batch: bool, names: list[str]) -> None:
    """One life: what the open stream had is what a fold of its facts has, whatever decides them."""
    chance, watch = Random(seed), Watch()
    work, past, at = offer(Random(seed), as_batch), list[tuple[Any, datetime]](), START
    for name in ["", *names]:
        if name:
            decide(chance, work, name)
        bodies = [body_of(event) for event in work.news]
        at += timedelta(milliseconds=chance.randrange(5000))
        work.settle(at)
        past += [(read_event(body.topic, body.schema, body.data or ""), at) for body in bodies]
        folded = again(work)
        for event, then in past:  # a replay refuses nothing
            folded.replay(event, then)
        assert (dump(folded.state), folded.version) == (dump(work.state), work.version)
        assert dump(load(work.STATE, dump(work.state))) == dump(work.state)
    folded = again(work)
    for event, then in past:
        folded.replay(event, then)
        watch.see(folded, event.topic)


def test_any_life_folds_to_what_it_was_and_has_one_claim_at_most() -> None:
    @settings(max_examples=50, deadline=None, database=None)
    @given(life=lives)
    def law(life: tuple[int, bool, list[str]]) -> None:
        lived(*life)

    law()


def test_a_replay_never_refuses_what_no_decision_would_allow() -> None:
    """The past is not up for debate: any facts in any order fold, and so does what is read of the fold."""

    @settings(max_examples=25, deadline=None, database=None)
    @given(seed=st.integers(0, 2**32), order=st.randoms(use_true_random=False))
    def law(seed: int, order: Any) -> None:
        works: dict[str, list[Any]] = {}
        for work in history(Random(seed), jobs=2, many=8):
            works.setdefault(work.CATEGORY, []).extend(work.news)
            work.settle(START)
        for kind in (OpenJob, OpenBatch):
            facts = works.get(kind.CATEGORY, [])
            order.shuffle(facts)
            anything = kind("x", "1")
            for fact in facts:
                anything.replay(fact, START)
            assert dump(load(kind.STATE, dump(anything.state))) == dump(anything.state)

    law()


# In a real ledger


def heads_are_the_fold(log: Ledger) -> None:
    found: list[Difference] = []
    verify(log, processes=1, found=found.append)
    assert not found


def test_a_head_is_the_fold_and_holds_the_token_of_the_claim(log: Ledger) -> None:
    chance = Random(11)
    works = {}

    def told() -> Any:
        for work in history(chance, jobs=10):
            works.setdefault(work.name, work)
            yield work

    assert record(log, told(), chance) > 50
    heads_are_the_fold(log)
    for name, work in works.items():
        head = log.head(name)
        assert head is not None
        loaded = log.load(type(work), *work.key)
        assert (dump(loaded.state), loaded.version) == (dump(work.state), work.version)
        assert (head.status, head.token) == (work.state.status, work.state.token)


STALE: dict[str, Callable[[Work], Any]] = {
    "report": lambda work: work.report("page.done", progress_current=9),
    "succeed": lambda work: (
        work.complete({"n": 1}) if isinstance(work, OpenBatch) else work.succeed()  # type: ignore[attr-defined]
    ),
    "attempt_failed": lambda work: work.attempt_failed("OSError"),
    "retry_later": lambda work: work.retry_later("busy"),
    "release": lambda work: work.release(),
    "expire": lambda work: work.expire(),
}


def guarded(log: Ledger, seed: int, names: list[str]) -> int:
    """One life in the ledger, which somebody watches who claimed it first; how often that was refused."""
    chance, refused = Random(seed), 0
    work = offer(chance, bool(seed % 2))
    log.commit(work)
    work.start("worker-1")
    log.commit(work)
    mine = log.load(type(work), *work.key)  # what the first worker believes
    token = mine.state.token
    assert token is not None
    for name in names:
        if decide(chance, work, name):
            log.commit(work)
        stale = again(work)
        stale.restore(mine.state, mine.version)
        chance.choice([*STALE.values()])(stale)
        before = log.load(type(work), *work.key).state
        try:
            log.append_all([stale.under_lease(token)])
        except GuardFailed:
            refused += 1
            assert before.token != token
            assert log.load(type(work), *work.key).state == before
            log.append(work.name, mine.late(token, "succeeded"))
            late = log.load(type(work), *work.key)
            assert (late.state.status, late.state.token) == (before.status, before.token)
        else:
            assert before.token == token
        work = log.load(type(work), *work.key)
    return refused


def test_a_stale_token_changes_nothing(log: Ledger) -> None:
    refused = sum(
        guarded(log, seed, [Random(seed).choice((*OFTEN, *DECISIONS)) for _ in range(6)])
        for seed in range(12)
    )
    assert refused > 10
    heads_are_the_fold(log)


@pytest.mark.slow
def test_lives_for_long(log: Ledger, minutes: float) -> None:
    until, seed = time.monotonic() + minutes * 60, 1000
    while time.monotonic() < until:
        seed += 1
        names = [Random(seed).choice((*OFTEN, *DECISIONS)) for _ in range(25)]
        lived(seed, bool(seed % 2), names)
        guarded(log, seed, names[:8])
        chance = Random(seed)
        record(log, history(chance, jobs=4), chance)
    heads_are_the_fold(log)


def test_of_two_that_claim_at_once_one_has_it(log: Ledger) -> None:
    chance = Random(5)
    job = offer(chance, as_batch=False)
    log.commit(job)
    one, two = (log.load(OpenJob, *job.key).start(f"worker-{n}") for n in (1, 2))
    log.append_all([append_of(one)])
    with pytest.raises(Exception, match="version"):
        log.append_all([append_of(two)])
    settled(one, log)
    assert log.load(OpenJob, *job.key).state.worker == "worker-1"


def test_a_report_conflicts_with_no_other_report_and_no_cancel_with_it(log: Ledger) -> None:
    chance = Random(6)
    work = offer(chance, as_batch=False)
    work.start("worker-1")
    log.commit(work)
    token = work.state.token
    assert token is not None
    first, second = (log.load(OpenJob, *work.key) for _ in range(2))
    for nth, opened in enumerate((first, second), 1):
        opened.report("page.done", progress_current=nth)
        log.append_all([opened.under_lease(token)])
    now = log.load(OpenJob, *work.key)
    assert (now.version, now.state.progress_current) == (4, 2)
    now.cancel()
    log.commit(now)
    second.settle(START)
    second.report("page.done", progress_current=3)
    with pytest.raises(GuardFailed):
        log.append_all([second.under_lease(token)])
    with pytest.raises((ClaimLost, MoveNotAllowed)):
        log.load(OpenJob, *work.key).report("page.done")
