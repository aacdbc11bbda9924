"""Measuring side by side: writer processes that take turns at several ways of doing the same work.

Every round runs each way for a moment, in turn, so that what disturbs the machine disturbs all of them;
the figure of a way is the median of its rounds, and a ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

Turn = Callable[[int], int]
"""Does one unit of work; is given a running number and returns how many events it recorded."""


class Crew(Protocol):
    """Makes, in a writer process, the ways of working by name. Called once in each process."""

    def __call__(self, writer: int) -> Mapping[str, Turn]: ...


def rates(
    crew: Crew, ways: Sequence[str], writers: int, rounds: int, seconds: float
) -> dict[str, list[float]]:
    """Events per second of each way in each round, with this many writer processes."""
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(writers)]
    processes = [context.Process(target=_work, args=(crew, i, pipe[1])) for i, pipe in enumerate(pipes)]
    for process in processes:
        process.start()
    ends = [pipe[0] for pipe in pipes]
    for end in ends:
        end.recv()
    found: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds + 1):  # the first one warms up
        for way in ways:
            for end in ends:
                end.send((way, seconds if number else min(seconds, 0.5)))
            rate = sum(end.recv() for end in ends)
            if number:
                found[way].append(rate)
        print(f"\r{writers} writers: round {number} of {rounds}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    for end, process in zip(ends, processes, strict=True):
        end.send(None)
        process.join()
    return found


def ratio(found: Mapping[str, Sequence[float]], way: str, other: str) -> float:
    """The median over the rounds of one way's rate by another's."""
    return round(statistics.median(a / b for a, b in zip(found[way], found[other], strict=True)), 3)


def median(values: Sequence[float]) -> float:
    """The middle one, to be printed."""
    return round(statistics.median(values), 1)


def _work(crew: Crew, writer: int, pipe: Any) -> None:
    ways = crew(writer)
    pipe.send("ready")
    numbers = dict.fromkeys(ways, 0)
    while (order := pipe.recv()) is not None:
        way, seconds = order
        turn, number, done = ways[way], numbers[way], 0
        begin = time.perf_counter()
        end = begin + seconds
        while time.perf_counter() < end:
            done += turn(number)
            number += 1
        numbers[way] = number
        pipe.send(done / (time.perf_counter() - begin))
