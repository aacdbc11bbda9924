"""
The filters of Prefect's events, as /events/out and POST /events/filter take them (spec 2.4).

    {"occurred": {"since": T, "until": T}, "event": {"name": […], "prefix": […]}, "resource": {"id": […]},
     "related": {"role": […]}, "any_resource": {"id_prefix": […]}, "id": {"id": […]}, "text": {"query": "x"}}

A label matches one of its values, in which * stands for any characters and ! in front for "not". Prefect's
own server ignores `related` for the events that it streams; here it means the same everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, Final, TypeAlias

from ledger import BadInput
from ledger.errors import shown
from ledger.runs.run_logs import terms

from .criteria import flag, ids, text, texts, time

Resource: TypeAlias = "Mapping[str, str]"

ID: Final = "prefect.resource.id"
ROLE: Final = "prefect.resource.role"


@dataclass(frozen=True, slots=True)
class NameFilter:
    """Which names an event may have; an empty list is no condition."""

    name: Sequence[str] = ()
    prefix: Sequence[str] = ()
    exclude_name: Sequence[str] = ()
    exclude_prefix: Sequence[str] = ()

    def includes(self, name: str) -> bool:
        """Whether an event of this name is included."""
        if self.name and name not in self.name:
            return False
        if self.prefix and not name.startswith(tuple(self.prefix)):
            return False
        return name not in self.exclude_name and not name.startswith(tuple(self.exclude_prefix))


@dataclass(frozen=True, slots=True)
class ResourceFilter:
    """What one resource must be; an empty condition is none. in_roles: pairs of id and role."""

    id: Sequence[str] = ()
    id_prefix: Sequence[str] = ()
    role: Sequence[str] = ()
    in_roles: Sequence[tuple[str, str]] = ()
    labels: Mapping[str, Sequence[str]] | None = None

    def includes(self, resource: Resource) -> bool:
        """Whether a resource is what it must be."""
        id, role = resource.get(ID, ""), resource.get(ROLE, "")
        return (
            (not self.id or id in self.id)
            and (not self.id_prefix or id.startswith(tuple(self.id_prefix)))
            and (not self.role or role in self.role)
            and (not self.in_roles or (id, role) in self.in_roles)
            and all(
                any(_matches(one, resource.get(label)) for one in values)
                for label, values in (self.labels or {}).items()
            )
        )


def _matches(pattern: str, value: str | None) -> bool:
    """Whether a label's value matches a pattern; a missing label matches none."""
    if value is None:
        return False
    return fnmatchcase(value, pattern.removeprefix("!")) is not pattern.startswith("!")


@dataclass(frozen=True, slots=True)
class EventFilter:
    """A filter of events. resource: conditions of the resource that an event is about; related, any_resource:
    conditions, each of which one of the related, or of all resources must fulfil. oldest_first: their order.
    """

    since: datetime | None = None
    until: datetime | None = None
    names: NameFilter = NameFilter()
    resource: ResourceFilter = ResourceFilter()
    related: Sequence[ResourceFilter] = ()
    any_resource: Sequence[ResourceFilter] = ()
    ids: Sequence[str] = ()
    query: str = ""
    oldest_first: bool = False

    @classmethod
    def of(cls, told: Any) -> EventFilter:
        """The filter in a client's JSON. Raises BadInput, which names the place."""
        given = _read(told or {}, "filter", _FILTER)
        occurred = _read(given.get("occurred") or {}, "filter.occurred", {"since": time, "until": time})
        names = _read(given.get("event") or {}, "filter.event", _NAMES)
        return cls(
            occurred.get("since"),
            occurred.get("until"),
            NameFilter(**{name: value for name, value in names.items() if value}),
            _resource(given.get("resource") or {}, "filter.resource"),
            _resources(given.get("related"), "filter.related"),
            _resources(given.get("any_resource"), "filter.any_resource"),
            _read(given.get("id") or {}, "filter.id", {"id": ids}).get("id") or (),
            _read(given.get("text") or {}, "filter.text", {"query": text}).get("query") or "",
            given.get("order") == "ASC",
        )

    def includes(self, event: Mapping[str, Any]) -> bool:
        """Whether an event, in Prefect's JSON form, is included."""
        occurred = datetime.fromisoformat(event["occurred"])
        related = event["related"]
        every = [event["resource"], *related]
        return (
            (self.since is None or occurred >= self.since)
            and (self.until is None or occurred <= self.until)
            and self.names.includes(event["event"])
            and (not self.ids or event["id"] in self.ids)
            and self.resource.includes(event["resource"])
            and all(any(map(one.includes, related)) for one in self.related)
            and all(any(map(one.includes, every)) for one in self.any_resource)
            and (not self.query.strip() or self._has_text(event))
        )

    def _has_text(self, event: Mapping[str, Any]) -> bool:
        """Whether the values in an event contain what is searched for, in upper or lower case."""
        resources = [event["resource"], *event["related"]]
        values = [value for resource in resources for value in resource.values()]
        told = " ".join([event["event"], *values, json.dumps(event["payload"])]).lower()
        wanted = terms(self.query)
        return (
            (not wanted["found"] or any(term in told for term in wanted["found"]))
            and all(term in told for term in wanted["required"])
            and not any(term in told for term in wanted["excluded"])
        )


Reader: TypeAlias = "Callable[[Any], Any]"


def _anything(given: Any) -> Any:
    return given


def _order(given: Any) -> str:
    if given not in ("ASC", "DESC"):
        raise ValueError("must be ASC or DESC")
    return str(given)


def _pairs(given: Any) -> list[tuple[str, str]]:
    pairs = [tuple(texts(pair)) for pair in given] if isinstance(given, list) else [()]
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError("must be a list of pairs of an id and a role")
    return pairs  # type: ignore[return-value]


def _labels(given: Any) -> dict[str, list[str]]:
    if not isinstance(given, Mapping):
        raise ValueError("must be an object")
    return {text(name): texts([value] if isinstance(value, str) else value) for name, value in given.items()}


_FILTER: Final = {
    **dict.fromkeys(("occurred", "event", "resource", "related", "any_resource", "id", "text"), _anything),
    "order": _order,
}
_NAMES: Final = dict.fromkeys(("name", "prefix", "exclude_name", "exclude_prefix"), texts)
_RESOURCE: Final[Mapping[str, Reader]] = {
    "id": texts, "id_prefix": texts, "labels": _labels, "role": texts, "resources_in_roles": _pairs,
    "distinct": flag,
}  # fmt: skip


def _read(told: Any, place: str, readers: Mapping[str, Reader]) -> dict[str, Any]:
    """The given fields of an object; null is the same as nothing. Raises BadInput."""
    if not isinstance(told, Mapping):
        raise BadInput(f"{place} must be an object, not {shown(told)}")
    found = {}
    for name, value in told.items():
        if name not in readers:
            raise BadInput(f"{place} has no field {shown(name)}; it has {', '.join(readers)}")
        if value is not None:
            try:
                found[name] = readers[name](value)
            except (TypeError, ValueError) as error:
                raise BadInput(f"{place}.{name}: {shown(value)} {error}") from None
    return found


def _resource(told: Any, place: str) -> ResourceFilter:
    given = _read(told, place, _RESOURCE)
    given.pop("distinct", None)
    if "resources_in_roles" in given:
        given["in_roles"] = given.pop("resources_in_roles")
    return ResourceFilter(**given)


def _resources(told: Any, place: str) -> tuple[ResourceFilter, ...]:
    """One condition, or a list of them."""
    if told is None:
        return ()
    return tuple(_resource(one, place) for one in (told if isinstance(told, list) else [told]))
