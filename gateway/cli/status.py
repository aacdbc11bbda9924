"""`pledger status`: the ledger, views and readers, workers and jobs, and failures, on one screen."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import typer

from .output import fields, is_terminal, iso, json_line, local
from .session import AsJson, Session, session_of

if TYPE_CHECKING:
    from ledger import Ledger


def status(context: typer.Context, as_json: AsJson = False) -> None:
    """Show the state of the ledger, its readers, workers and jobs on one screen.

    Changes nothing. Exits 0 even if something is wrong; `pledger doctor` checks it and names a remedy.

    JSON, one object: ledger (id, dsn, schema, schema_number, position, last_event_at), configuration (its
    file), views (view, state, lag_events, lag_seconds, parked), readers (reader, position, lag: positions
    behind, parked), workers (here, silent, draining, slots, busy), jobs (how many, by status; null if the
    view of jobs does not exist), failures (dead_letters, parked_streams, stopped_views, silent_workers).
    """
    session = session_of(context, as_json)
    session.know_views()
    with session.ledger() as log:
        seen = _look(log, session)
    if session.json:
        json_line(asdict(seen))
    else:
        fields(_told(seen), color=session.color)


@dataclass(frozen=True, slots=True)
class Overview:
    """The content of `pledger status`; also the keys of its JSON."""

    ledger: dict[str, Any]
    configuration: str | None
    views: list[dict[str, Any]]
    readers: list[dict[str, Any]]
    workers: dict[str, int]
    jobs: dict[str, int] | None
    failures: dict[str, int]


def _look(log: Ledger, session: Session) -> Overview:
    from ledger.log.readers import ParkedStreams
    from projections.engine.watch import State, watch

    bound = log.bound()
    last = next(iter(log.last(1, bound)), None)
    ledger = {
        "id": str(log.identity.ledger), "dsn": log.address.printable, "schema": log.schema,
        "schema_number": log.identity.schema_number, "position": bound,
        "last_event_at": None if last is None else iso(last.recorded_at),
    }  # fmt: skip
    states = watch(log)
    views = [
        {"view": s.view, "state": s.state.value, "lag_events": s.lag_events, "lag_seconds": s.lag_seconds,
         "parked": s.parked}
        for s in states
    ]  # fmt: skip
    readers: list[dict[str, Any]] = [
        {"reader": r.reactor, "position": r.position, "lag": bound - (r.position), "parked": r.parked}
        for r in ParkedStreams(log).readers()
    ]
    workers = _workers(log)
    jobs, dead = _jobs(log)
    failures = {
        "dead_letters": dead,
        "parked_streams": sum(s.parked for s in states) + sum(r["parked"] for r in readers),
        "stopped_views": sum(s.state == State.STOPPED for s in states),
        "silent_workers": workers["silent"],
    }
    return Overview(ledger, session.file, views, readers, workers, jobs, failures)


def _workers(log: Ledger) -> dict[str, int]:
    from ledger.jobs.leases import Leases

    rows = Leases(log).workers()
    heard = [row for row in rows if row.state != "silent"]
    return {
        "here": len(heard),
        "silent": len(rows) - len(heard),
        "draining": sum(row.draining for row in heard),
        "slots": sum(row.slots for row in heard),
        "busy": sum(row.busy for row in heard),
    }


def _jobs(log: Ledger) -> tuple[dict[str, int] | None, int]:
    """How many jobs there are by status, and how many dead letters; None if no view of them exists."""
    from projections.feeds import filling_of
    from projections.jobs import JobQueries
    from projections.jobs.dead_letters import dead_letters

    if filling_of(log, "jobs") is None:
        return None, 0
    counts: dict[str, int] = {}
    for row in JobQueries(log).counts():
        counts[row.status] = counts.get(row.status, 0) + row.jobs
    return counts, dead_letters(log)


def _told(seen: Overview) -> list[tuple[str, str]]:
    """The lines for a person: brief where all is well; problems with names."""
    ledger = seen.ledger
    pairs = [("ledger", f"{ledger['dsn']}, schema {ledger['schema']}, {ledger['id']}")]
    if seen.configuration:
        pairs.append(("configuration", seen.configuration))
    pairs.append(("log", f"position {ledger['position']:,}, last event {_time(ledger['last_event_at'])}"))
    lagging = [v for v in seen.views if v["state"] not in ("live", "inline")]
    pairs += [("views", f"{len(seen.views) - len(lagging)} of {len(seen.views)} are live")]
    pairs += [("", _view(view)) for view in lagging]
    late = [r for r in seen.readers if r["lag"]]
    pairs.append(("readers", f"{len(seen.readers)}, {len(late)} of them behind" if seen.readers else "none"))
    pairs += [("", f"{r['reader']} is {r['lag']:,} positions behind") for r in late]
    w = seen.workers
    busy = f"{w['here']} here, {w['busy']} of {w['slots']} slots busy, {w['draining']} draining"
    pairs.append(("workers", busy if w["here"] else "none"))
    jobs = ", ".join(f"{many:,} {status}" for status, many in sorted((seen.jobs or {}).items()))
    unknown = "unknown: the view jobs does not exist"
    pairs.append(("jobs", jobs or ("none" if seen.jobs is not None else unknown)))
    wrong = [f"{many} {name.replace('_', ' ')}" for name, many in seen.failures.items() if many]
    pairs.append(("failures", ", ".join(wrong) or "none"))
    return pairs


def _view(view: dict[str, Any]) -> str:
    behind = f", {view['lag_events']:,} events behind" if view["lag_events"] else ""
    parked = f", {view['parked']} streams parked" if view["parked"] else ""
    return f"{view['view']}: {view['state']}{behind}{parked}"


def _time(at: str | None) -> str:
    if at is None:
        return "none yet"
    from datetime import datetime

    return local(datetime.fromisoformat(at)) if is_terminal() else at
