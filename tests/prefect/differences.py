"""The differences from Prefect's own server that are meant, each with its reason: the only list of them.

`python -m tests.prefect.differences > docs/reference/prefect-differences.md` writes the page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MISSING = "(missing)"


@dataclass(frozen=True, slots=True)
class Difference:
    """What is different, why it is meant, and the places of the read models where the scenarios show it.

    where: a pattern of places as `flat` names them; None where no scenario shows it.
    """

    what: str
    theirs: str
    ours: str
    reason: str
    where: str | None = None
    only: tuple[Any, Any] | None = None
    """The two values that may stand there, Prefect's and ours; None: any."""
    scenarios: str = "abcdefghi"
    """The letters of the scenarios that show it."""

    def covers(self, letter: str, place: str, theirs: Any, ours: Any) -> bool:
        """Whether a read model of a scenario may differ in this way at this place."""
        if self.where is None or letter not in self.scenarios or self.only not in (None, (theirs, ours)):
            return False
        return re.search(self.where, place) is not None


MEANT: tuple[Difference, ...] = (
    Difference(
        "`state_details.deployment_concurrency_lease_id`",
        "also the state of a run that has ended names its lease",
        "a state names the lease only while the run holds the slot",
        "what a state names can be relied on: a slot is held exactly where a state says so",
        r"\.state_details\.deployment_concurrency_lease_id$",
    ),
    Difference(
        "secrets inside lists, and secrets that are objects",
        "shown in clear",
        "hidden, unless a request asks for secrets",
        "what a schema marks as secret is secret in every form",
        r"^blocks\[\d+\]\.data\.(headers|value)\b",
    ),
    Difference(
        "`state_details.deferred` that a client sends as null",
        "null",
        "false",
        "the clients do not tell them apart, and a state is kept without what it does not say",
        r"\.state_details\.deferred$",
        (MISSING, False),
    ),
    Difference(
        "`next_scheduled_start_time` of a task run that began",
        "keeps the time of a background task",
        "null: nothing is scheduled any more",
        "the field follows from the states, in the same way for all runs (S3, 4.6)",
        r"^(flows.*\.)?tasks\[\d+\]\.next_scheduled_start_time$",
        ("<time>", None),
    ),
    Difference(
        "block types of Prefect itself, such as `secret`",
        "registered and protected from the start",
        "registered by the client that saves the first block, and like all others",
        "the server keeps no copy of what the client brings, so that they cannot differ",
        r"^blocks\[\d+\]\.(block_schema\.)?block_type\.is_protected$|^blocks.*\.definitions\.JsonValue$",
    ),
    Difference(
        "`run_count` of a run that paused in its process",
        "counts each time that it goes on",
        "counts the attempts: going on after a pause is none",
        "a pause must not use up a retry (W3-03)",
        r"^flows\[\d+\]\.runs\[\d+\]\.run_count$",
        (2, 1),
        "g",
    ),
    Difference(
        "runs that a schedule makes",
        "their first state does not name its run, and no event tells of it",
        "like every other first state",
        "one way to make a run",
        r"^flows\[0\]\.runs\[\d\]\.states\[0\]\.state_details\.flow_run_id$",
        scenarios="c",
    ),
    Difference(
        "`prefect block type inspect secret` before a secret is saved",
        "is known",
        "is not known yet",
        "see the block types of Prefect itself",
        r"^report\.records\.secret type$",
        (0, 1),
        "h",
    ),
    Difference(
        "the PENDING of a background task that a flow submitted",
        "does not name the flow run",
        "names its flow run, as every state of the task run does",
        "one way to set a state",
        r"^flows\[0\]\.runs\[0\]\.tasks\[0\]\.states\[1\]\.state_details\.flow_run_id$",
        scenarios="i",
    ),
    Difference(
        "`job_variables` that a client sends as null",
        "null",
        "an empty object, as where they are left out",
        "both say that there are none",
        r"\.job_variables$",
        (None, {}),
    ),
    Difference(
        "the global limit that deployments share",
        "deleted with the first of the deployments",
        "only the limit that a deployment made for itself is deleted with it",
        "the other deployments still count on it",
    ),
    Difference(
        "a repeated proposal of a state",
        "recognised only if the proposal before it is the same",
        "recognised among the last 50 of the run",
        "a client that repeats a request must not use up a retry (W3-03)",
    ),
    Difference(
        "waiting until a scheduled time",
        "rounded to the nearest second, so up to half a second early",
        "rounded up",
        "a run never begins before its time (W3-09)",
    ),
    Difference(
        "a paused run whose time is over",
        "can only become FAILED",
        "can be cancelled, too; only going on is refused",
        "a user may always end a run (W3-09)",
    ),
    Difference(
        "a lease of a slot that was lost while the work went on",
        "cancels the run",
        "is taken again where a slot is free",
        "the work is healthy (W3-07)",
    ),
    Difference(
        "the events of runs",
        "sent beside the transaction: they can be lost, or announce what was undone",
        "derived from the log when they are read",
        "they are exactly what happened (W3-08)",
    ),
    Difference(
        "`/events/in`",
        "the close is answered before the events are recorded",
        "a ping and the close are answered after the commit",
        "what was acknowledged is there after a crash",
    ),
    Difference(
        "a frame of `/events/in` that is no event, or larger than 4 MiB",
        "the ping after it is answered, and the connection cut; 16 MiB are allowed",
        "nothing after it is answered, and the connection closed with 1007 or 1009",
        "an answer is a receipt",
    ),
    Difference(
        "background tasks that wait for a client",
        "are in the memory of the server; what a client took and did not begin is lost with it",
        "are in the log, and given to another client when the first is gone for a minute",
        "a restart loses nothing",
    ),
    Difference(
        "the channel of workers, `/work_pools/NAME/workers/connect`",
        "there since 3.8",
        "404: workers send their heartbeats by HTTP",
        "that is what clients fall back to, and it does all the same",
    ),
    Difference(
        "lists right after a write",
        "may show task runs some seconds late",
        "wait for the view, for one second at most",
        "who writes reads what was written",
    ),
    Difference(
        "automations",
        "triggers are evaluated, and actions run",
        "kept, listed and changed; nothing evaluates their triggers",
        "a reactor on the log does what an automation does, and its progress is kept",
    ),
    Difference(
        "parameters that are Jinja templates (`__prefect_kind: jinja`)",
        "rendered by the server",
        "refused; JSON and variables are filled in",
        "a template of a client is no code that a server should run",
    ),
    Difference(
        "types of work pools whose package the client has not installed, such as `docker`",
        "the server has a list of them, with their templates",
        "unknown: `prefect work-pool create` needs the package, such as prefect-docker, beside the client",
        "the templates are those of the workers that will run, not a copy that the server keeps",
    ),
    Difference(
        "parameters of a run of more than 512 kB",
        "refused, unless a setting allows more",
        "taken, in a body of up to 4 MiB",
        "one limit for all requests",
    ),
    Difference(
        "the key of block values",
        "in the same database as the values, unless it is set by hand",
        "in a file or a variable outside of the database, and rotated by command",
        "who has the database or a backup of it must not be able to read secrets",
    ),
)

ABSENT: tuple[str, ...] = (
    "GET /ui/task_runs/{}",
    "POST /automations/templates/validate",
    "POST /task_workers/filter",
    "POST /templates/validate",
    "POST /ui/flow_runs/count-task-runs",
    "POST /ui/flow_runs/history",
    "POST /ui/flows/count-deployments",
    "POST /ui/flows/next-runs",
    "POST /ui/schemas/validate",
    "POST /ui/task_runs/count",
    "POST /ui/task_runs/dashboard/counts",
)
"""The requests that Prefect's own server answers and this one does not. {} is a parameter."""


def differences(letter: str, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    """One line for each place where they differ and are not meant to."""
    places = [*theirs, *(place for place in ours if place not in theirs)]
    values = [(place, theirs.get(place, MISSING), ours.get(place, MISSING)) for place in places]
    return [
        f"{place}: Prefect {there!r}, here {here!r}"
        for place, there, here in values
        if there != here and not any(meant.covers(letter, place, there, here) for meant in MEANT)
    ]


HEAD = """\
# Differences from Prefect's own server

Made by `python -m tests.prefect.differences` from the list that the comparison of both servers allows; change
it there.

The scenarios of `tests/prefect` run with unmodified clients of Prefect on both servers, and the final read
models are compared field by field. Ids, times, durations and random names are compared by what they mean.
Where the second table has no place, no scenario shows the difference; tests of its own prove it.

| what | Prefect's own server | here | why |
|---|---|---|---|
"""

PLACES = """

The places of the read models where the comparison allows a difference, as regular expressions:

| what | places |
|---|---|
"""

NOT_HERE = """

These requests of Prefect's own server are answered with 404. Its web page sends them; its clients, workers
and command line do not. A test compares the documents of both servers.

"""


def page() -> str:
    """The page of the differences."""
    rows = [f"| {one.what} | {one.theirs} | {one.ours} | {one.reason} |" for one in MEANT]
    meant = [one for one in MEANT if one.where]
    places = [f"| {one.what} | `{_in_cell(one.where or '')}` |" for one in meant]
    absent = [f"- `{one}`" for one in ABSENT]
    return HEAD + "\n".join(rows) + PLACES + "\n".join(places) + NOT_HERE + "\n".join(absent) + "\n"


def _in_cell(pattern: str) -> str:
    """A pattern in a cell of a table, whose columns | would part."""
    return pattern.replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")
