"""The graph of a flow run: its task runs and subflows, and which of them took the results of which."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from ledger import Ledger
from ledger.log.sql import Statements
from ledger.runs.json_values import time_text

SQL: Final = Statements(__package__, "graph")
MOST: Final = 10_000
"""Nodes, and artifacts, of a graph at most, as Prefect's server has it."""
ENCAPSULATING: Final = "__parents__"
"""The input under which a client names the task in whose body another one was called."""


class GraphParts(NamedTuple):
    """The parts of a graph in Prefect's JSON form. nodes: pairs of id and node, by when they began.

    artifacts: those of the flow run itself; those of tasks are in their nodes.
    """

    root_node_ids: list[str]
    nodes: list[tuple[str, dict[str, Any]]]
    artifacts: list[dict[str, Any]]


def run_graph(ledger: Ledger, flow_run_id: str, since: datetime | None = None) -> GraphParts | None:
    """The graph of a flow run, as fresh as the views; None if it has more than 10,000 nodes.

    since: without the nodes that ended before.
    """
    rows = ledger.query(SQL.nodes, run=flow_run_id, limit=MOST + 1)
    if len(rows) > MOST:
        return None
    ids = {id: began for _, id, _, _, began, _, _ in rows}
    above, around, below = (defaultdict[str, list[str]](list) for _ in range(3))
    for _, id, *_, inputs in rows:
        for name, others in (inputs or {}).items():
            (around if name == ENCAPSULATING else above)[id] += _known(others, ids)
    for id in ids:  # in the order of their begin
        for parent in dict.fromkeys(above[id]):
            below[parent].append(id)
    artifacts = _artifacts(ledger, flow_run_id)
    nodes = []
    for kind, id, label, state_type, began, ended, _ in rows:
        if since is not None and ended is not None and ended < since:
            continue
        node = {
            "kind": kind, "id": id, "label": label, "state_type": state_type,
            "start_time": time_text(began), "end_time": None if ended is None else time_text(ended),
            "parents": _edges(above[id], ids), "children": _edges(below[id], ids),
            "encapsulating": _edges(around[id], ids), "artifacts": artifacts.get(id, []),
        }  # fmt: skip
        nodes.append((id, node))
    return GraphParts([id for id, node in nodes if not node["parents"]], nodes, artifacts.get(None, []))


def _known(inputs: Any, ids: Mapping[str, datetime]) -> list[str]:
    """The ids of the nodes that an input names; a client may send anything."""
    named = [one.get("id") for one in inputs or () if isinstance(one, Mapping)]
    return [id for id in named if isinstance(id, str) and id in ids]


def _edges(nodes: Iterable[str], ids: Mapping[str, datetime]) -> list[dict[str, str]]:
    """The ends of edges, each once, by when they began."""
    return [{"id": id} for id in sorted(dict.fromkeys(nodes), key=lambda one: (ids[one], one))]


def _artifacts(ledger: Ledger, flow_run_id: str) -> Mapping[str | None, list[dict[str, Any]]]:
    """The artifacts of a flow run by the ids of their task runs; None: of none."""
    found = defaultdict[str | None, list[dict[str, Any]]](list)
    for id, created, key, kind, task_run, data, is_latest in ledger.query(
        SQL.artifacts, run=flow_run_id, limit=MOST
    ):
        found[task_run].append(
            {
                "id": id, "created": time_text(created), "key": key, "type": kind,
                "is_latest": is_latest, "data": data,
            }
        )  # fmt: skip
    return found
