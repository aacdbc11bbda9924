"""Read models in a form that is the same for the same history: ids and times get labels."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.prefect.clients import PROGRAMS

UUID = re.compile(
    r"(?<![0-9a-f])[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}([0-9a-f]{8})?(?![0-9a-f])"
)
TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d| UTC)?")
AGO = re.compile(r"\b(a few seconds|a minute|an hour|\d+ (seconds?|minutes?|hours?)) ago\b|\bnow\b")
SLUG = re.compile(r"[a-z]+-[a-z]+")
TRACE = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-\d\d")
SUBMITTED = re.compile(r"(?<=Flow run ')[a-z]+-[a-z]+(?=' submitted)")
PYTHON_TIME = re.compile(r"DateTime\(\d[^()]*(\([^()]*\))?\)")
VERSION = re.compile(r"\b3\.(6|8|9)\.\d+\b")
ABOVE = re.compile(r"(\.\./)+[^ ]*<programs>|\.\.[./]*<programs>")
DETAILS = {
    "cache_expiration", "cache_key", "child_flow_run_id", "deferred",
    "deployment_concurrency_lease_id", "flow_run_id", "pause_key", "pause_reschedule",
    "pause_timeout", "refresh_cache", "retriable", "run_input_keyset",
    "scheduled_time", "task_parameters_id", "task_run_id", "traceparent",
    "transition_id", "untrackable_result",
}  # fmt: skip
"""What every state's details show; those that are null are left out where all are there."""
SECONDS = {"total_run_time", "estimated_run_time", "estimated_start_time_delta", "avg_slot_occupancy_seconds"}


class Normal:
    """Makes the labels of one scenario's read models and puts them in."""

    def __init__(self, home: Path) -> None:
        self._texts = {str(home): "<home>", str(PROGRAMS): "<programs>"}
        self._labels: dict[str, str] = {}

    def of(self, tree: Any) -> Any:
        """The tree with labels; an id that belongs to nothing in it is `<id>`."""
        self._learn(tree, "")
        return self._shown(tree, "")

    def _learn(self, tree: Any, place: str) -> None:
        """Give each object that has an id a label that says what it is."""
        if isinstance(tree, list):
            for number, one in enumerate(tree):
                self._learn(one, f"{place} {number}")
        elif isinstance(tree, dict):
            name = tree.get("name") or tree.get("key") or ""
            if isinstance(tree.get("id"), str):
                self._labels.setdefault(tree["id"].replace("-", ""), f"<{place.strip()}>")
            if "flow_id" in tree and "run_count" in tree and SLUG.fullmatch(name):
                self._texts.setdefault(name, "<slug>")
            if "dynamic_key" in tree and name.endswith("-" + tree["dynamic_key"][:3]):
                self._texts.setdefault(name, name[:-3] + "<key>")
            for field, value in tree.items():
                self._learn(value, f"{place} {field}")

    def _shown(self, tree: Any, field: str) -> Any:
        if isinstance(tree, dict):
            if tree.keys() == DETAILS:
                tree = {name: value for name, value in tree.items() if value is not None}
            return {self._text(name): self._shown(value, name) for name, value in tree.items()}
        if isinstance(tree, list):
            return [self._shown(one, field) for one in tree]
        if field in SECONDS and isinstance(tree, int | float):
            return "<seconds>" if tree or field.startswith(("estimated", "avg")) else 0
        if isinstance(tree, str):
            return self._field(tree, field)
        return tree

    def _field(self, text: str, field: str) -> str:
        if field == "infrastructure_pid":
            return "<pid>"
        if field == "task_key":
            return re.sub(r"-[0-9a-f]{8}$", "-<source>", text)
        return self._text(text)

    def _text(self, text: str) -> str:
        for known, label in self._texts.items():
            text = text.replace(known, label)
        text = ABOVE.sub("<programs>", text)
        text = TRACE.sub("<trace>", text)
        text = UUID.sub(lambda found: self._labels.get(found[0].replace("-", ""), "<id>"), text)
        if "│" in text:  # a row of a table, as wide as what stands in other rows
            text = " ".join(text.split())
        text = PYTHON_TIME.sub("<time>", SUBMITTED.sub("<slug>", text))
        return VERSION.sub("<version>", AGO.sub("<ago>", TIME.sub("<time>", text)))


def flat(tree: Any, place: str = "") -> dict[str, Any]:
    """Each leaf by its place; objects in a list by their number."""
    if isinstance(tree, dict) and tree:
        pairs = [(f"{place}.{name}" if place else name, value) for name, value in tree.items()]
    elif isinstance(tree, list) and tree:
        pairs = [(f"{place}[{number}]", value) for number, value in enumerate(tree)]
    else:
        return {place: tree}
    return {leaf: value for inner, inside in pairs for leaf, value in flat(inside, inner).items()}
