"""The final read models of a scenario, read from a server's API after the client has ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import httpx

from tests.prefect.scenarios import Scenario

Json = dict[str, Any]
BY_CHANCE = {"prefect.flow-run.heartbeat", "prefect.flow-run.Late"}
"""Events that depend on how long things took."""
OF_THE_WORKER = {"prefect.flow_runs.worker", "prefect.flow_runs.runner"}
"""The loggers of who starts the process of a run: what they saw of its end depends on how long it took."""
RENEWED_TOO_LATE = "Concurrency lease renewal failed"
"""A client renews a lease in a thread of its own, which may come after it has released the lease."""
OF_RUNS = {"prefect.flow_runs", "prefect.task_runs"}
"""The loggers of a run's own process, which may be ended before it has sent its last lines."""


class ReadModels:
    """What one scenario left on a server; every object is found by a name that only this scenario uses."""

    def __init__(self, api: httpx.Client, scenario: Scenario, report: Mapping[str, Any]) -> None:
        self._api, self._scenario, self._report = api, scenario, report

    def all(self) -> Json:
        """Every list and every object, as the server shows it."""
        return {
            "report": dict(self._report),
            "flows": [self._flow(flow) for flow in self._mine(self._every("flows"))],
            "tasks": [self._task(self._get(f"task_runs/{one}")) for one in self._report.get("task_runs", ())],
            "deployments": [self._deployment(one) for one in self._mine(self._every("deployments"))],
            "pools": [self._pool(one) for one in self._mine(self._every("work_pools"))],
            "variables": self._mine(self._every("variables")),
            "block types": self._mine(self._every("block_types")),
            "blocks": [self._block(one) for one in self._mine(self._every("block_documents"))],
            "artifacts": by(self._mine(self._every("artifacts"), "key"), "key", "created"),
            "latest artifacts": by(self._mine(self._post("artifacts/latest/filter", {}), "key"), "key"),
            "limits": by(self._mine(self._every("v2/concurrency_limits")), "name"),
            "limits by tag": by(self._mine(self._every("concurrency_limits"), "tag"), "tag"),
        }

    def _flow(self, flow: Json) -> Json:
        wanted = {"flows": {"id": {"any_": [flow["id"]]}}}
        runs = self._scenario.kept(by(self._post("flow_runs/filter", wanted), "created"))
        return flow | {
            "runs": [self._run(run) for run in runs],
            "by name": self._get(f"flows/name/{flow['name']}") == self._get(f"flows/{flow['id']}"),
            "deployments": self._post("deployments/count", wanted),
        }

    def _run(self, run: Json) -> Json:
        wanted = {"flow_runs": {"id": {"any_": [run["id"]]}}}
        tasks = by(self._post("task_runs/filter", wanted), "task_key", "name", "start_time", "created")
        states = by(self._get("flow_run_states/", flow_run_id=run["id"]), "timestamp")
        # Whether a run was late depends on how busy the machine was.
        states = [state for state in states if state["name"] != "Late"]
        again = self._get(f"flow_runs/{run['id']}")
        for one in (run, again):
            one["empirical_policy"]["pause_keys"].sort()  # a set, as the tags are
            one["tags"].sort()
        return run | {
            "state": _as_listed(run["state"], states),
            "again": steady(again) == steady(run),
            "states": states,
            "tasks": [self._task(task) for task in _in_order(tasks)],
            "count of tasks": self._post("task_runs/count", wanted),
            "logs": self._logs(run["id"]),
            "events": self._events(f"prefect.flow-run.{run['id']}", run["auto_scheduled"]),
            "inputs": self._post(f"flow_runs/{run['id']}/input/filter", {"prefix": ""}),
        }

    def _task(self, task: Json) -> Json:
        states = by(self._get("task_run_states/", task_run_id=task["id"]), "timestamp")
        return task | {
            "state": _as_listed(task["state"], states),
            "again": steady(self._get(f"task_runs/{task['id']}")) == steady(task),
            "states": states,
            "events": self._events(f"prefect.task-run.{task['id']}"),
        }

    def _logs(self, run: str) -> list[list[Any]]:
        """The level, logger and text of each line, without tracebacks; threads write in any order."""
        lines = self._post("logs/filter", {"logs": {"flow_run_id": {"any_": [run]}}, "limit": 200})
        lines = [line for line in lines if line["name"] not in OF_THE_WORKER]
        lines = [line for line in lines if not line["message"].startswith(RENEWED_TOO_LATE)]
        if not self._scenario.last_lines:
            lines = [line for line in lines if line["name"] not in OF_RUNS]
        return sorted([line["level"], line["name"], line["message"].partition("\n")[0]] for line in lines)

    def _events(self, resource: str, by_schedule: bool = False) -> list[str]:
        """The names of the events about a run's states, in their order; Prefect has none of its schedules."""
        wanted = {"filter": {"resource": {"id": [resource]}, "order": "ASC"}, "limit": 50}
        events = self._post("events/filter", wanted)["events"]
        left_out = BY_CHANCE | ({"prefect.flow-run.Scheduled"} if by_schedule else set())
        return [event["event"] for event in events if event["event"] not in left_out]

    def _deployment(self, deployment: Json) -> Json:
        schedules = self._get(f"deployments/{deployment['id']}/schedules")
        _polled(deployment)
        deployment["schedules"] = by(deployment["schedules"], "active", "slug", "schedule")
        return deployment | {
            "schedules again": by(schedules, "active", "slug", "schedule") == deployment["schedules"],
            "again": steady(self._get(f"deployments/{deployment['id']}"), "schedules", "status")
            == steady(deployment, "schedules", "status"),
        }

    def _pool(self, pool: Json) -> Json:
        name = pool["name"]
        queues = by(self._post(f"work_pools/{name}/queues/filter", {}), "name")
        workers = by(self._post(f"work_pools/{name}/workers/filter", {}), "name")
        again = steady(self._get(f"work_pools/{name}"), "status") == steady(pool, "status")
        if workers:
            # Whether a worker is ONLINE, and its pool READY, depends on how many seconds ago it was seen.
            for one in (pool, *workers):
                assert one["status"] in ("ONLINE", "OFFLINE", "READY", "NOT_READY")
                one["status"] = "seen"
        return pool | {"queues": [_polled(queue) for queue in queues], "workers": workers, "again": again}

    def _block(self, block: Json) -> Json:
        """A block as lists show it, and with its secrets as who loads it by name gets them."""
        place = f"block_types/slug/{block['block_type']['slug']}/block_documents/name/{block['name']}"
        return block | {"secrets": self._get(place, include_secrets="true")["data"]}

    def _mine(self, found: Iterable[Json], key: str = "name") -> list[Json]:
        """Those of this scenario, in the order of their names."""
        starts = (f"{self._scenario.letter}-", f"{self._scenario.letter}_")
        return by([one for one in found if str(one[key] or "").startswith(starts)], key)

    def _every(self, kind: str) -> list[Json]:
        found: list[Json] = []
        while True:
            page = self._post(f"{kind}/filter", {"limit": 200, "offset": len(found)})
            found += page
            if len(page) < 200:
                return found

    def _post(self, path: str, body: Json) -> Any:
        return self._answer(self._api.post(path, json=body))

    def _get(self, path: str, **query: str) -> Any:
        return self._answer(self._api.get(path, params=query))

    def _answer(self, response: httpx.Response) -> Any:
        request = response.request
        assert response.is_success, f"{request.method} {request.url}: {response.status_code} {response.text}"
        return response.json()


def by(found: Iterable[Json], *keys: str) -> list[Json]:
    """The objects in the order of these fields; nothing stands first."""
    return sorted(found, key=lambda one: [str(one[key] or "") for key in keys])


def steady(shown: Json, *without: str) -> Json:
    """An object without what is computed anew at each reading."""
    moving = {"estimated_run_time", "estimated_start_time_delta", *without}
    return {name: value for name, value in shown.items() if name not in moving}


def _polled(shown: Json) -> Json:
    """Whether it is READY depends on how many seconds ago somebody polled it."""
    if shown["last_polled"] and shown["status"] in ("READY", "NOT_READY"):
        shown["status"] = "polled"
    return shown


def _as_listed(state: Json | None, states: list[Json]) -> Any:
    """The current state, or a word where it is the last of the list, field by field."""
    return "the last of states" if states and state == states[-1] else state


def _in_order(tasks: list[Json]) -> list[Json]:
    """By task and name, for tasks that run at once start in any order; a name may end in a random key."""
    return sorted(
        tasks,
        key=lambda task: (
            task["task_key"],
            task["name"].removesuffix(task["dynamic_key"][:3]),
            task["start_time"] or task["created"],
        ),
    )
