"""A server with all scenarios played on it, several at a time; what each left is read when it has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.prefect.clients import Ended, play
from tests.prefect.normal import Normal
from tests.prefect.readback import ReadModels
from tests.prefect.scenarios import Scenario

AT_ONCE = 3
"""So many programs run beside each other: they wait for one another's services more than they compute."""


@dataclass(frozen=True, slots=True)
class Played:
    """A program's end and the read models that it left."""

    ended: Ended
    models: Any


class Stage:
    """Plays scenarios with one version of Prefect on one server."""

    def __init__(self, version: str, url: str, folder: Path, *, settling: bool) -> None:
        self._version, self._url, self._folder, self._settling = version, url, folder, settling
        self._pool = ThreadPoolExecutor(AT_ONCE)

    def begin(self, scenarios: Iterable[Scenario]) -> dict[str, Callable[[], Played]]:
        """Start them all; by letter, what waits for the end of one."""
        running = {one.letter: self._pool.submit(self._play, one) for one in scenarios}
        return {letter: _result(future) for letter, future in running.items()}

    def _play(self, scenario: Scenario) -> Played:
        home = self._folder / scenario.letter
        ended = play(self._version, scenario.program, home, self._url)
        if ended.code:
            return Played(ended, None)
        with httpx.Client(base_url=self._url, timeout=60) as api:
            read = lambda: Normal(home).of(ReadModels(api, scenario, ended.report).all())  # noqa: E731
            return Played(ended, _settled(read) if self._settling else read())

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def _result(future: Future[Played]) -> Callable[[], Played]:
    return future.result


def _settled(read: Callable[[], Any]) -> Any:
    """What Prefect's own server shows in the end: it records task runs some time after their flow."""
    before, now = None, read()
    while before != now:
        time.sleep(2)
        before, now = now, read()
    return now
