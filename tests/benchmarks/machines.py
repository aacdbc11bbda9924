"""
What moving objects through a machine costs beside the article's own pattern: `dev.py bench machines`.

    move_vs_article_1, _4, _16   moves a second of so many processes, each with many objects of its own:
                                 `Machine(log, key).move(state)` by UPDATE … RETURNING, INSERT, COMMIT
    in_state_vs_article          time to join a million payments with those in one state, a thousand of them
    one_object_64                moves a second of 64 movers of one object in 4 processes, who try again

Ours by theirs: the rates shall be high, the time low. Both on one server, durable, in turns; the article's
way is in article.py. figures: the absolute numbers; of the one object the versions, how many of them had not
exactly one winner, and the deadlocks, both 0.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from queue import LifoQueue
from typing import Any
from uuid import uuid4

import psycopg

import ledger
from ledger import TransitionConflict, retry_conflicts
from ledger.embedded import Embedded, throwaway
from ledger.log.install import init
from ledger.machines import From, Machine, State
from tests.benchmarks import article
from tests.benchmarks.article import Article
from tests.benchmarks.payments_in_state import in_state
from tests.benchmarks.rounds import Turn, median, rates, ratio

OBJECTS = 50
"""Objects that each process moves, in turn."""
CONNECTIONS = 8
"""Of each way in each of the processes at one object; all together are fewer than the server's hundred."""
DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
SUCCESSORS = {"a": {"a", "b"}, "b": {"a", "b"}}


class Swing(Machine, name="swing"):
    """Between a and b, for ever."""

    A = State("a", initial=True)
    B = State("b")
    table = (From(A).To(A, B), From(B).To(A, B))


def way(number: int) -> str:
    """Where the move of this number leads to: all objects to b, then all to a, and so on."""
    return "ba"[number // OBJECTS % 2]


@dataclass(frozen=True)
class MoveCrew:
    """The two ways of moving, each with objects of its own."""

    dsn: str
    mark: str

    def __call__(self, writer: int) -> Mapping[str, Turn]:
        log = ledger.connect(self.dsn, create=False)
        theirs = Article(self.dsn, "a", SUCCESSORS)

        def key(number: int) -> str:
            return f"{self.mark}-{writer}-{number % OBJECTS}"

        def ours(number: int) -> int:
            Swing(log, key(number)).move(way(number))
            return 1

        def article(number: int) -> int:
            theirs.move(key(number), way(number))
            return 1

        return {"ours": ours, "article": article}


def moves(dsn: str, processes: int, rounds: int, seconds: float) -> tuple[dict[str, float], dict[str, float]]:
    """Moves a second of so many processes."""
    found = rates(MoveCrew(dsn, uuid4().hex[:6]), ("ours", "article"), processes, rounds, seconds)
    return {f"move_vs_article_{processes}": ratio(found, "ours", "article")}, {
        f"{name}_{processes}_per_s": median(found[name]) for name in found
    }


@dataclass(frozen=True)
class OneObjectCrew:
    """Threads that all move one object, over a few connections; a turn is a while of theirs."""

    dsn: str
    key: str
    threads: int
    seconds: float

    def __call__(self, writer: int) -> Mapping[str, Turn]:
        log = ledger.connect(self.dsn, create=False, max_size=CONNECTIONS)
        free = LifoQueue[Article]()
        for _ in range(CONNECTIONS):
            free.put(Article(self.dsn, "a", SUCCESSORS))
        wins = psycopg.connect(self.dsn, autocommit=True)

        def ours(number: int) -> int:
            return Swing(log, self.key).move("ab"[number % 2]).number

        def theirs(number: int) -> int:
            one = free.get()
            try:
                return one.move(self.key, "ab"[number % 2])
            finally:
                free.put(one)

        def ours_noted(_: int) -> int:
            won = self._together(ours)
            wins.execute("INSERT INTO wins SELECT unnest(%s::integer[])", [won])
            return len(won)

        return {"ours": ours_noted, "article": lambda _: len(self._together(theirs))}

    def _together(self, move: Callable[[int], int]) -> list[int]:
        """What the moves of all threads returned until the time was over."""
        end = time.perf_counter() + self.seconds

        def mover(_: int) -> list[int]:
            won: list[int] = []
            while time.perf_counter() < end:
                again = partial(move, len(won))
                try:
                    won.append(retry_conflicts(again, attempts=21, pause=0.002, max_pause=0.05))
                except TransitionConflict:
                    continue
            return won

        with ThreadPoolExecutor(self.threads) as pool:
            return [*chain(*pool.map(mover, range(self.threads)))]


def one_object(
    dsn: str, rounds: int, seconds: float, movers: int, processes: int = 4
) -> tuple[dict[str, float], dict[str, float]]:
    """Moves a second of many movers of one object, and whether each version was won once."""
    key = uuid4().hex[:6]
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE wins (version integer)")
    crew = OneObjectCrew(dsn, key, movers // processes, seconds)
    found = rates(crew, ("ours", "article"), processes, rounds, seconds)
    with ledger.connect(dsn, create=False) as log, psycopg.connect(dsn, autocommit=True) as connection:
        versions = {move.number for move in Swing(log, key).history()}
        won = Counter(version for (version,) in connection.execute("SELECT version FROM wins"))
        deadlocks = connection.execute(DEADLOCKS).fetchone()
    assert deadlocks is not None
    return {f"one_object_{movers}": ratio(found, "ours", "article")}, {
        **{f"one_object_{name}_per_s": median(found[name]) for name in found},
        "one_object_versions": len(versions),
        "one_object_not_won_once": sum(1 for version in versions | set(won) if won[version] != 1),
        "one_object_deadlocks": deadlocks[0],
    }


def prepare(server: Embedded) -> str:
    """A database with a ledger and the article's table."""
    with psycopg.connect(server.admin_dsn(), autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS machines WITH (FORCE)")
        connection.execute("CREATE DATABASE machines OWNER pledger")
    dsn = server.dsn("machines")
    with psycopg.connect(dsn, autocommit=True) as connection:
        init(connection)
    lay(dsn)
    return dsn


def lay(dsn: str) -> None:
    """The article's table, beside a ledger."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(article.SCHEMA)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All ratios, and the figures that they come of."""
    ratios: dict[str, float] = {}
    figures: dict[str, float] = {"cpus": os.cpu_count() or 0}
    with throwaway(durable=True) as server:
        parts: list[Callable[[], tuple[dict[str, float], dict[str, float]]]] = []
        if "move" in options.only:
            for processes in options.processes:
                parts.append(lambda n=processes: moves(prepare(server), n, options.rounds, options.seconds))
        if "one" in options.only:
            parts.append(lambda: one_object(prepare(server), options.rounds, options.seconds, options.movers))
        if "in_state" in options.only:
            parts.append(
                lambda: in_state(
                    prepare(server), server.admin_dsn("machines"), options.objects, options.rounds
                )
            )
        for part in parts:
            found, absolute = part()
            ratios |= found
            figures |= absolute
            for name, value in (found | absolute).items():
                print(f"{name:28} {value:>12}", file=sys.stderr if options.json else sys.stdout, flush=True)
    return ratios | {"figures": figures}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run it all and print the ratios."""
    parser = argparse.ArgumentParser(
        prog="dev.py bench machines",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one object as the last line")
    parser.add_argument("--rounds", type=int, default=7, help="how often each way has its turn")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one turn")
    parser.add_argument("--processes", type=int, nargs="*", default=[1, 4, 16])
    parser.add_argument("--movers", type=int, default=64, help="of one object")
    parser.add_argument("--objects", type=int, default=1_000_000, help="of which one state is asked for")
    parser.add_argument("--only", nargs="*", default=["move", "one", "in_state"])
    options = parser.parse_args(arguments)
    found = measure(options)
    if options.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
