"""
A log such as pipelines leave it, made by the real domains, for measuring and for tests.

Projects of LSM and PS-OCT: items are created, started, fail and are tried again, get their flags, are
reset, touched, deleted and created anew; a few of many are still running at the end. Lives of many items go
on side by side, so the events of a stream lie scattered over the log; several actors act; some appends have
a command id.

A life is played once by the open item of its domain, and then lived by many items, with their ids and times
put into what it recorded: that is several times as fast. A head gets its state with the last append of its
stream; the few streams that are not at their end when enough is there get it then.

    with ledger.connect(dsn) as log:
        fill(log, 1_000_000)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from random import Random
from typing import Any

from ledger import Append, Body, Exact, Ledger
from ledger.domain.names import stream_name
from ledger.domain.state import STAMP, dump
from ledger.log.append import body_of
from ledger.pipelines import (
    LSMChannelState,
    LSMProjectState,
    LSMSliceState,
    LSMStripState,
    OCTBatchState,
    OCTMosaicState,
    OCTProjectState,
    OCTSliceState,
)

ACTORS = ("mina@scope-1", "noah@scope-2", "worker-1", "worker-2", "worker-3", "reactor readiness")
REASONS = ("the disk was full", "no such file", "worker lost", "bad tile 7", "out of memory")
AT_ONCE = 120
"""Lives of one writer that go on side by side, and so streams in one append."""
WITH_COMMAND = 4
"""Each so many-th append has a command id."""
VARIETY = 60
"""Different lives of each kind of item."""
FIRST_ID = 7_000_000_001
"""Stands in a played life for the first id of an item, the next number for the second."""
MOMENTS = [datetime(3000, 1, 1, tzinfo=UTC) + timedelta(days=n) for n in range(60)]
"""Stand in a played life for the times of its appends."""
MARKS = [dump(moment) for moment in MOMENTS]

Played = Iterator[Any]
"""A life as it is played: yields the open item whenever its news shall be appended."""


@dataclass(frozen=True, slots=True)
class Filled:
    """What was made: how many events, of how many streams, by how many appends."""

    events: int
    streams: int
    appends: int


@dataclass(frozen=True, slots=True)
class Step:
    """What one append of a life records, and what the item is then; times as MARKS, ids from FIRST_ID on."""

    bodies: list[Body]
    status: str
    state: str
    state_schema: int


def played(life: Played) -> list[Step]:
    """A life, played by an open item of its domain; what two turns made is recorded by one append."""
    steps: list[Step] = []
    item = None
    for turn, item in enumerate(life):
        if turn % 2:
            steps.append(_step(item, len(steps)))
    if item is not None and item.news:
        steps.append(_step(item, len(steps)))
    return steps


def _step(item: Any, nth: int) -> Step:
    bodies = [body_of(event) for event in item.news]
    item.settle(MOMENTS[nth])
    return Step(bodies, item.state.status.value, dump(item.state), item.state_schema())


@dataclass(slots=True)
class Life:
    """A life that is being lived by the item of a stream."""

    stream: str
    ids: tuple[tuple[str, int], ...]
    steps: list[Step]
    times: list[datetime] = field(default_factory=list)
    version: int = 0

    def append(self) -> Append:
        """The next step; with the state where it is the last."""
        nth, step = len(self.times), self.steps[len(self.times)]
        last = nth + 1 == len(self.steps)
        return Append(
            self.stream, step.bodies, Exact(self.version), status=step.status, base=self.version,
            state=self.state_at(nth) if last else None, state_schema=step.state_schema,
        )  # fmt: skip

    def state_at(self, nth: int) -> str:
        """The state after a step: ids and times put in, and a mark for that of the append itself."""
        text = self.steps[nth].state.replace(MARKS[nth], STAMP)
        for mark, at in zip(MARKS, self.times, strict=False):
            text = text.replace(mark, dump(at))
        for place, (name, number) in enumerate(self.ids):
            text = text.replace(f'"{name}":{FIRST_ID + place}', f'"{name}":{number}')
        return text

    def lived(self, at: datetime) -> bool:
        """The step was recorded; whether there is another."""
        self.version += len(self.steps[len(self.times)].bodies)
        self.times.append(at)
        return len(self.times) < len(self.steps)

    def cut(self) -> None:
        """End with the next step, whatever would come after."""
        self.steps = self.steps[: len(self.times) + 1]


def fill(log: Ledger, events: int, *, seed: int = 7, writers: int = 2, first: int = 0) -> Filled:
    """Append so many events or some more; the same seed makes the same histories of streams.

    writers: threads that append. first: number of the first project, so that a ledger can be filled again.
    """
    share = -(-events // writers)
    with ThreadPoolExecutor(writers) as pool:
        parts = [pool.submit(_fill, log, share, seed + n, first + 1_000_000 * n) for n in range(writers)]
        made = [part.result() for part in parts]
    return Filled(*(sum(numbers) for numbers in zip(*map(astuple, made), strict=True)))


def _fill(log: Ledger, events: int, seed: int, first: int) -> Filled:
    chance = Random(seed)
    waiting = _lives(chance, first)
    lives = [*islice(waiting, AT_ONCE)]
    made = appends = streams = 0
    while lives:
        appends += 1
        if made >= events:
            for life in lives:
                life.cut()
        command = None if appends % WITH_COMMAND else f"fill-{seed}-{first}-{appends}"
        steps = [life.append() for life in lives]
        at = log.append_all(steps, actor=chance.choice(ACTORS), command=command).recorded_at
        made += sum(len(step.events) for step in steps)
        streams += sum(not life.times for life in lives)
        lives = [life for life in lives if life.lived(at)]
        if made < events:
            lives += islice(waiting, AT_ONCE - len(lives))
    return Filled(made, streams, appends)


class Repertoire:
    """Lives by kind of item, played when they are first wanted."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.known: dict[tuple[type[Any], int], list[Step]] = {}

    def life(
        self, kind: type[Any], key: tuple[str | int, ...], play: Callable[[Random, Any], Played]
    ) -> Life:
        """A life for the item of this key."""
        which = kind, self.chance.randrange(VARIETY)
        if which not in self.known:
            ids = [FIRST_ID + place for place in range(len(key) - 1)]
            self.known[which] = played(play(self.chance, kind("any", *ids)))
        names = kind.IDENT.fields()[1:]
        ids_of = tuple((name, int(number)) for name, number in zip(names, key[1:], strict=True))
        return Life(stream_name(kind.CATEGORY, *key), ids_of, self.known[which])


def _lives(chance: Random, first: int) -> Iterator[Life]:
    """The lives of all items of one project after the other, for ever; parents before their children."""
    number, repertoire = first, Repertoire(chance)
    while True:
        number += 1
        yield from _lsm(repertoire, f"brain-{number}") if number % 2 else _oct(repertoire, f"vessel-{number}")


def _lsm(repertoire: Repertoire, project: str) -> Iterator[Life]:
    yield _project(LSMProjectState(project), project, strips_per_slice=12)
    channel = partial(_parent, flags=("mip_stitched", "volume_stitched", "volume_uploaded"))
    strip = partial(_work, flags=("compressed", "archived", "uploaded"))
    for a in range(1, 5):
        yield repertoire.life(LSMSliceState, (project, a), _parent)
        for b in range(2):
            yield repertoire.life(LSMChannelState, (project, a, b), channel)
            for c in range(1, 13):
                yield repertoire.life(LSMStripState, (project, a, b, c), strip)


def _oct(repertoire: Repertoire, project: str) -> Iterator[Life]:
    yield _project(OCTProjectState(project), project, batches_per_mosaic=16, mosaics_per_slice=2)
    a_slice = partial(_parent, flags=("registered", "uploaded"))
    mosaic = partial(
        _parent, flags=("enface_stitched", "volume_stitched", "enface_uploaded", "volume_uploaded")
    )
    batch = partial(_work, flags=("complexed", "volume_processed", "enface_processed", "uploaded"))
    for a in range(1, 4):
        yield repertoire.life(OCTSliceState, (project, a), a_slice)
        for b in range(1, 3):
            yield repertoire.life(OCTMosaicState, (project, a, b), mosaic)
            for c in range(1, 17):
                yield repertoire.life(OCTBatchState, (project, a, b, c), batch)


def _project(item: Any, name: str, **totals: int) -> Life:
    return Life(item.name, (), played(_planned(item, name, **totals)))


# How they live


def _planned(item: Any, name: str, **totals: int) -> Played:
    item.create(name=name)
    item.plan(**totals)
    yield item
    item.mark_started()
    yield item


def _parent(chance: Random, item: Any, flags: tuple[str, ...] = ()) -> Played:
    """A slice, channel or mosaic: it starts, and its stages are claimed and done."""
    item.create(under=1)
    item.mark_started()
    yield item
    for flag in flags:
        claim = item.enter(flag)
        yield item
        if chance.random() < 0.1:
            item.leave(flag, claim, chance.choice(REASONS))
            claim = item.enter(flag)
            yield item
        item.set_flag(flag)
        yield item
    item.mark_completed()
    yield item


def _work(chance: Random, item: Any, flags: tuple[str, ...]) -> Played:
    """A strip or batch: attempts until one succeeds, its flags, and now and then all over again."""
    item.create(under=1)
    item.mark_started()
    yield item
    while chance.random() < 0.15:
        item.mark_failed(chance.choice(REASONS))
        yield item
        item.mark_pending()
        item.mark_started()
        yield item
    for flag in flags:
        item.set_flag(flag)
        if chance.random() < 0.5:
            item.touch()
        yield item
    item.mark_completed()
    yield item
    if chance.random() < 0.08:
        item.reset_flag(flags[0])
        item.mark_started()
        yield item
        item.set_flag(flags[0])
        item.mark_completed()
        yield item
    if chance.random() < 0.03:
        item.set_flag(flags[-1], False)
        item.record(item.FACTS.deleted())
        yield item
        item.create(under=1)
        yield item
