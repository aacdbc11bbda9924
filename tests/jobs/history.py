"""
A random but legal history of jobs and batches, made by the real domain: every kind of fact comes in it.

    record(log, history(Random(7), jobs=20), Random(8))

`steps` plays one piece of work, decision by decision; `history` plays many side by side, with child jobs and
batches of several rounds; `record` appends what was decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from random import Random
from typing import Any
from uuid import UUID

from ledger import ANY, Append, Ledger, MoveNotAllowed
from ledger.errors import BadInput, ClaimLost
from ledger.jobs import OpenBatch, OpenJob
from ledger.jobs.job import JobRecounted, JobSucceeded
from ledger.jobs.work import OpenWork
from ledger.log.append import append_of

QUEUES, OPERATIONS, TAGS = ("default", "gpu", "a/b %"), ("embed", "write", "ping"), ("red", "ü", "a b")
Work = OpenWork[Any, Any]
Decision = Callable[[Random, Work], Any]


def job_id(chance: Random) -> str:
    """An id of this history's own."""
    return str(UUID(int=chance.getrandbits(128), version=4))


def offered(chance: Random) -> dict[str, Any]:
    """Fields that jobs and batches have when they are offered; small budgets, so that all are spent."""
    return {
        "queue": chance.choice(QUEUES), "priority": chance.randrange(-2, 3),
        "payload": {"n": chance.randrange(9)}, "max_attempts": chance.randrange(1, 4),
        "max_retries": chance.randrange(3), "max_requeues": chance.randrange(3),
    }  # fmt: skip


def create(chance: Random, job: OpenJob, **more: Any) -> None:
    """Submit a job with any fields."""
    at = datetime(2031, 5, 6, chance.randrange(24), tzinfo=UTC)
    later = chance.choice([{}, {}, {}, {"run_at": at}, {"delay_seconds": 2.5}])
    job.create(
        chance.choice(OPERATIONS), tags=tuple(chance.sample(TAGS, chance.randrange(3))),
        description=chance.choice([None, "what it is about"]), meta={"x": [1]},
        **{**offered(chance), **later, **more},
    )  # fmt: skip


# Decisions, which a stream may refuse.


def _report(chance: Random, work: Work) -> None:
    progress = {name: chance.choice([None, 0, 7, 2**70]) for name in ("progress_current", "progress_total")}
    work.report("page.done", message="so far", fields={"page": 1}, level="warning", **progress)


def _fail(chance: Random, work: Work) -> None:
    work.fail(chance.choice(["OSError", "KeyError"]), "ä" * chance.choice([3, 2005]), {"exit_code": 1})


def _attempt(chance: Random, work: Work) -> None:
    work.attempt_failed("ValueError", "no such page", delay=chance.choice([0, 1.5, 7000]))


def _retry(chance: Random, work: Work) -> None:
    work.retry_later("GPU busy", chance.choice([0, 30, 400.25]))


def _succeed(chance: Random, work: Work) -> None:
    if isinstance(work, OpenBatch):
        work.complete({"rows": 3})
    else:
        work.succeed({"rows": 3}, progress_current=chance.choice([None, 3]))  # type: ignore[attr-defined]


def _second_step(chance: Random, work: Work) -> None:
    if isinstance(work, OpenBatch):
        work.computed("write", chance.choice(QUEUES), {"uri": "s3://x"})


def _describe(chance: Random, work: Work) -> None:
    if isinstance(work, OpenJob):
        work.describe(findings="much", tags=("red",), description=chance.choice([None, "anew"]))


def _words(chance: Random, work: Work) -> None:
    if isinstance(work, OpenJob):
        work.comment("look at this", "mina")


def _dispatch(chance: Random, work: Work) -> None:
    if isinstance(work, OpenJob):
        work.begin_dispatch()
        children = [job_id(chance) for _ in range(chance.randrange(3))]
        work.dispatch(chance.randrange(4), [*children, *work.state.children[:1]], failure_ratio=0.5)


def _adopt(chance: Random, work: Work) -> None:
    if isinstance(work, OpenJob):
        work.add_child(chance.choice([job_id(chance), *work.state.children]))


def _reopen(chance: Random, work: Work) -> None:
    if isinstance(work, OpenJob):
        work.reopen("go on")


def _recount(chance: Random, work: Work) -> None:
    """Its set closes it, or what was redriven of the set is counted anew."""
    counts = {"progress_current": 2, "progress_total": 3, "failed": 1}
    if isinstance(work, OpenJob) and work.state.dispatched:
        work.record(JobSucceeded(via="last_batch_stored", **counts))
    elif isinstance(work, OpenJob) and work.state.status == "succeeded" and work.state.split:
        work.record(JobRecounted(**counts))


def _late(chance: Random, work: Work) -> None:
    work.record(work.late(1, "succeeded", result={"rows": 4}))


DECISIONS: dict[str, Decision] = {
    "start": lambda chance, work: work.start(f"worker-{chance.randrange(3)}"),
    "report": _report, "fail": _fail, "attempt": _attempt, "retry": _retry, "succeed": _succeed,
    "second step": _second_step, "dispatch": _dispatch, "adopt": _adopt, "describe": _describe,
    "words": _words, "late": _late,
    "release": lambda _, work: work.release(), "expire": lambda _, work: work.expire(),
    "again": lambda _, work: work.offer_again(),
    "cancel": lambda chance, work: work.cancel(chance.choice([None, "parent_cancelled"])),
    "redrive": lambda _, work: work.redrive("try once more"),
    "discard": lambda _, work: work.discard("hopeless"),
    "delete": lambda _, work: isinstance(work, OpenJob) and work.delete(),
    "reopen": _reopen, "recount": _recount,
}  # fmt: skip
OFTEN = (
    *("start",) * 6, *("report", "attempt", "retry", "expire", "fail", "dispatch", "second step") * 2,
    "release", "succeed", "redrive", "reopen", "recount",
)  # fmt: skip
"""Decisions that come oftener than once: those that need a claim, which is not always there."""


def decide(chance: Random, work: Work, name: str) -> bool:
    """Take a decision; False where the stream refused it, or nothing came of it."""
    before = len(work.news)
    try:
        DECISIONS[name](chance, work)
    except (MoveNotAllowed, ClaimLost, BadInput):
        return len(work.news) > before
    return len(work.news) > before


def steps(chance: Random, work: Work, many: int) -> Iterator[Work]:
    """A piece of work that was offered, through up to `many` decisions that came to something."""
    for _ in range(many):
        names = [chance.choice((*OFTEN, *DECISIONS)) for _ in range(10)]
        if any(decide(chance, work, name) for name in names):
            yield work


def history(chance: Random, jobs: int = 12, many: int = 8) -> Iterator[Work]:
    """Lives of jobs, their children and their batches, side by side; what is yielded is to be appended."""
    lives, born = list[Iterator[Work]](), 0
    while lives or born < jobs:
        if born < jobs and (len(lives) < 6 or chance.random() < 0.1):
            lives.append(_life(chance, OpenJob(job_id(chance)), many, lives))
            born += 1
        life = chance.choice(lives)
        work = next(life, None)
        if work is None:
            lives.remove(life)
        else:
            yield work


def _life(
    chance: Random, job: OpenJob, many: int, lives: list[Iterator[Work]], **more: Any
) -> Iterator[Work]:
    create(chance, job, **more)
    yield job
    for _ in steps(chance, job, many):
        fresh = job.state.dispatched and not job.over
        yield job
        if fresh and chance.random() < 0.8:
            lives += [_batch_life(chance, job, nr, many) for nr in range(1, job.state.batches + 1)]
            for child in job.state.children[:2]:
                lives.append(_life(chance, OpenJob(child), many // 2, lives, parent=job.key[0]))


def _batch_life(chance: Random, job: OpenJob, nr: int, many: int) -> Iterator[Work]:
    batch = OpenBatch(job.key[0], OpenBatch.number(job.state.rounds, nr))
    batch.queue(job.state.rounds, chance.choice(OPERATIONS), **offered(chance))
    yield batch
    yield from steps(chance, batch, many)


def record(log: Ledger, works: Iterator[Work], chance: Random, at_once: int = 8) -> int:
    """Append a history, up to so many decisions in one append; how many facts were recorded.

    Late results are now and then recorded at any version, all else exactly at its own. A stream whose life is
    lived twice (a child of two parents) keeps its first one.
    """
    ready: dict[str, Work] = {}
    recorded, known = 0, dict[str, Work]()
    for work in works:
        if known.setdefault(work.name, work) is not work:
            continue
        ready[work.name] = work
        if len(ready) >= at_once or chance.random() < 0.3:
            recorded += _append(log, list(ready.values()), chance)
            ready.clear()
    return recorded + _append(log, list(ready.values()), chance)


def _append(log: Ledger, works: list[Work], chance: Random) -> int:
    news = [work for work in works if work.news]
    if not news:
        return 0
    many = sum(len(work.news) for work in news)
    log.append_all([_way(work, chance) for work in news], actor=chance.choice(["mina", "worker-1"]))
    for work in news:
        settled(work, log)
    return many


def _way(work: Work, chance: Random) -> Append:
    append = append_of(work)
    late = type(work.news[0]).__name__.endswith("LateResult") and len(work.news) == 1
    return append._replace(expected=ANY) if late and chance.random() < 0.5 else append


def settled(work: Work, log: Ledger) -> None:
    """Let it be as after its append, at the database's time."""
    head = log.head(work.name)
    assert head is not None
    work.settle(log.read(work.name, after=head.version - 1)[0].recorded_at)
