"""
The schedules of a deployment: replaced, added, changed and removed, as lists without side effects.

A schedule is one of the JSON objects in the field `schedules` of a deployment; slugs are unique among them.
`given` schedules are what a client sends: schedule, active, max_scheduled_runs, parameters, slug, replaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from ..errors import BadInput, BadRecord, RecordNotFound
from .json_values import new_id, time_text
from .schedules import checked_schedule

Schedules = list[dict[str, Any]]
_CONTENT: Final = ("schedule", "active", "max_scheduled_runs", "parameters", "slug")
MOST_RUNS: Final = 100
"""Greatest `max_scheduled_runs` of a schedule: as many runs as the scheduler makes at once."""


def replaced(before: Sequence[Mapping[str, Any]], given: Iterable[Mapping[str, Any]]) -> Schedules:
    """The given schedules instead of those before; one with equal content keeps its id. Raises BadRecord."""
    left = [dict(one) for one in before]
    after: Schedules = []
    for one in map(_content, given):
        same = next((old for old in left if all(old.get(key) == one[key] for key in _CONTENT)), None)
        if same is not None:
            left.remove(same)
        after.append(same or _made(one))
    return _checked(after)


def added(before: Sequence[Mapping[str, Any]], given: Iterable[Mapping[str, Any]]) -> Schedules:
    """Those before, and the given ones. Raises BadRecord, also for a slug that is taken."""
    return _checked([*map(dict, before), *(_made(_content(one)) for one in given)])


def changed_one(before: Sequence[Mapping[str, Any]], id: str, given: Mapping[str, Any]) -> Schedules:
    """Those before, with this one changed; None leaves a field as it is. Raises BadRecord, RecordNotFound."""
    if all(one["id"] != id for one in before):
        raise RecordNotFound("deployment_schedule", id)
    return _checked([_altered(one, given) if one["id"] == id else dict(one) for one in before])


def removed(before: Sequence[Mapping[str, Any]], id: str) -> Schedules:
    """Those before, without this one. Raises RecordNotFound."""
    if all(one["id"] != id for one in before):
        raise RecordNotFound("deployment_schedule", id)
    return [dict(one) for one in before if one["id"] != id]


def patched(before: Sequence[Mapping[str, Any]], given: Sequence[Mapping[str, Any]]) -> Schedules:
    """What a PATCH of a deployment makes of its schedules. Raises BadRecord.

    Where all have slugs, those with the given slugs are changed, new ones added, and the others stay;
    `replaces` names the slug of the one that gets a new slug. Otherwise the given ones replace all; none of
    them may lack a slug where all before have one, since that would drop them by mistake.
    """
    all_given = all(one.get("slug") for one in given)
    if not (before and all(one.get("slug") for one in before)):
        return replaced(before, [one for one in given if one.get("schedule") is not None])
    if not all_given:
        raise BadRecord("deployment", ["schedules: each needs a slug, because those before have slugs"])
    targets = [str(one.get("replaces") or one["slug"]) for one in given]
    if len({*targets}) < len(targets):
        raise BadRecord("deployment", ["schedules: two of them mean the schedule of one slug"])
    after: Schedules = [dict(one) for one in before]
    for target, one in zip(targets, given, strict=True):
        place = next((n for n, old in enumerate(before) if old["slug"] == target), None)
        if place is not None:
            after[place] = _altered(before[place], one)
        else:
            after.append(_made(_content(one)))
    return _checked(after)


def _content(given: Any) -> dict[str, Any]:
    """A new schedule without id and times. Raises BadRecord."""
    if not isinstance(given, Mapping) or not isinstance(given.get("schedule"), Mapping):
        raise BadRecord("deployment", ["schedules: each needs a schedule with an interval, cron or rrule"])
    active = given.get("active")
    return {
        "schedule": _schedule(given["schedule"]),
        "active": True if active is None else active,
        "max_scheduled_runs": _most(given.get("max_scheduled_runs")),
        "parameters": given.get("parameters") or {},
        "slug": given.get("slug"),
    }


def _made(content: Mapping[str, Any]) -> dict[str, Any]:
    now = time_text(datetime.now(UTC))
    return {"id": new_id(), "created": now, "updated": now, **content}


def _altered(before: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    changes = {key: given[key] for key in _CONTENT if given.get(key) is not None}
    if "schedule" in changes:
        changes["schedule"] = _schedule(changes["schedule"])
    _most(changes.get("max_scheduled_runs"))
    after = {**before, **changes}
    return after if after == before else {**after, "updated": time_text(datetime.now(UTC))}


def _schedule(given: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return checked_schedule(given)
    except BadInput as error:
        raise BadRecord("deployment", [f"schedules: {error}"]) from None


def _most(runs: Any) -> Any:
    if isinstance(runs, int) and runs > MOST_RUNS:
        raise BadRecord("deployment", [f"max_scheduled_runs: must not be greater than {MOST_RUNS}"])
    return runs


def _checked(schedules: Schedules) -> Schedules:
    slugs = [one["slug"] for one in schedules if one.get("slug") is not None]
    if twice := sorted({slug for slug in slugs if slugs.count(slug) > 1}):
        raise BadRecord("deployment", [f"schedules: more than one has the slug {slug}" for slug in twice])
    return schedules
