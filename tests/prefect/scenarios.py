"""The scenarios: which program, and which of its runs are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Scenario:
    """A program of a user; the names of all that it makes begin with its letter."""

    letter: str
    program: str
    about: str
    only_runs: tuple[str, ...] = ()
    """The names of the runs to compare, of each the first, where a schedule makes more than one needs."""

    last_lines: bool = True
    """Whether the processes that it ends have sent all their lines to the log."""

    def kept(self, runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The runs to compare, of those in the order of their creation."""
        if not self.only_runs:
            return [dict(run) for run in runs]
        return [dict(next(run for run in runs if run["name"] == name)) for name in self.only_runs]


SCENARIOS = (
    Scenario(
        "g", "g_stops.py", "cancel by a worker, pause and resume with an input, suspend", last_lines=False
    ),
    Scenario("d", "d_worker.py", "work pool, worker, deployment, runs that are asked for"),
    Scenario("c", "c_serve.py", "serve() with schedules", ("served 5", "served 7")),
    Scenario("h", "h_commands.py", "the commands of `prefect`"),
    Scenario("f", "f_limits.py", "limits, limits by tag, rates"),
    Scenario("i", "i_background.py", "background tasks", last_lines=False),
    Scenario("a", "a_flows.py", "flows, tasks, retries, failures, returned states"),
    Scenario("b", "b_subflows.py", "subflows"),
    Scenario("e", "e_records.py", "variables, blocks with secrets, artifacts"),
)
"""Those that take longest stand first."""
