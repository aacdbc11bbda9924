"""
External events: names `<root>.<pipeline>.<level>.<state>` and envelopes of facts (spec S0-70, S0-71).

    external_names("lsm.strip.completed")     ("linc.opticstream.lsm.strip.processed",)
    external_event(recorded)                  what an automation that listens to that name expects

A pipeline declares the names: `outside` of it, of its levels and flags. Other facts have no external name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Final
from uuid import NAMESPACE_URL, UUID, uuid5

from ..domain.names import split_name
from ..errors import BadInput
from ..log.recorded import Recorded
from . import lsm, psoct  # noqa: F401 - so that their names are known
from .ident import Ident
from .item import OpenItem
from .pipeline import PIPELINES

RESOURCE_ID: Final = "prefect.resource.id"


@dataclass(frozen=True, slots=True)
class ExternalEvent:
    """An event for other systems: the keywords of Prefect's `emit_event`; `name` is `event` there.

    id: the same whenever one fact is sent under one name, so that receivers can drop repeats. occurred:
    when the ledger recorded the fact. Both are None where no recorded fact was given.
    """

    name: str
    resource: dict[str, str]
    payload: dict[str, Any]
    occurred: datetime | None = None
    id: UUID | None = None


def all_external_names() -> dict[str, tuple[str, ...]]:
    """The external names of each topic that has any, of every pipeline that this process has imported."""
    return {topic: names for each in PIPELINES.values() for topic, names in each.names_outside.items()}


def external_names(topic: str) -> tuple[str, ...]:
    """The external names of a fact, the conventional one first; most topics have none (spec S0-70)."""
    pipeline = PIPELINES.get(topic.partition(".")[0])
    return pipeline.names_outside.get(topic, ()) if pipeline else ()


def topic_of(external_name: str) -> str | None:
    """The topic that has this external name; None if there is none. The inverse of `external_names`."""
    found = (topic for topic, names in all_external_names().items() if external_name in names)
    return next(found, None)


def external_event(
    fact: Recorded | str,
    ident: Ident | None = None,
    *,
    resource_defaults: Mapping[str, str] | None = None,
    payload_defaults: Mapping[str, Any] | None = None,
    extra_resource: Mapping[str, str] | None = None,
    extra_payload: Mapping[str, Any] | None = None,
) -> ExternalEvent:
    """The external event of a fact, under its first name (spec S0-71): a recorded fact, or a topic and ident.

    ident: the item. By default it is read from the stream's name, with the spelling of the project there;
    give one to keep another spelling. defaults: what all events of a sender contain; extras: what this one
    contains. An extra of the resource replaces a default. Raises BadInput, a ValueError, for a fact without
    an external name, for the ident of another item, and for a key that would replace a shared or payload key.
    """
    topic, ident = _subject(fact, ident)
    if not external_names(topic):
        raise BadInput(
            f"{topic!r} has no external name; topics that have one: {', '.join(sorted(all_external_names()))}"
        )
    project = f"{PIPELINES[topic.partition('.')[0]].outside}.project"
    for what, given in (("extra_resource", extra_resource), ("resource_defaults", resource_defaults)):
        _refuse(what, "shared resource keys", (RESOURCE_ID, project), given)
    resource = {RESOURCE_ID: str(ident), project: ident.project_name}
    payload: dict[str, Any] = {f"{topic.split('.')[1]}_ident": asdict(ident)}
    for what, added in (("payload_defaults", payload_defaults), ("extra_payload", extra_payload)):
        _refuse(what, "base payload keys", payload, added)
        payload |= added or {}
    resource |= {**(resource_defaults or {}), **(extra_resource or {})}
    return _named(ExternalEvent("", resource, payload), external_names(topic)[0], fact)


def external_events(
    fact: Recorded | str, ident: Ident | None = None, **settings: Mapping[str, Any] | None
) -> tuple[ExternalEvent, ...]:
    """The external events of a fact, one for each of its names, for old and new listeners; may be empty.

    settings: those of `external_event`.
    """
    names = external_names(fact.topic if isinstance(fact, Recorded) else fact)
    if not names:
        return ()
    event = external_event(fact, ident, **settings)
    return tuple(_named(event, name, fact) for name in names)


def provenance(recorded: Recorded) -> dict[str, Any]:
    """The place of a fact in the ledger, for an audit: `extra_payload=provenance(recorded)`.

    It is not in every payload, because spec S0-71 defines the payload, and listeners may check it.
    """
    place = {"stream": recorded.stream, "version": recorded.version, "position": recorded.position}
    return {"ledger": {**place, "recorded_at": recorded.recorded_at.isoformat()}}


def ident_of_stream(stream: str) -> Ident:
    """The ident of the item with this stream. Raises BadInput for a stream that is not an item's."""
    category, parts = split_name(stream)
    level = _level(category)
    if level is None or not parts:
        raise BadInput(f"{stream!r} is not the stream of a project's item: its category is {category!r}")
    return level.IDENT(*level.key_of(parts))  # type: ignore[arg-type]


def _level(category: str) -> type[OpenItem[Any]] | None:
    """The level whose items have streams of this category; readiness streams have categories of their own."""
    category = category.removesuffix(".ready")
    pipeline = PIPELINES.get(category.partition(".")[0])
    return next((kind for kind in pipeline or () if category == kind.CATEGORY), None)


def _subject(fact: Recorded | str, ident: Ident | None) -> tuple[str, Ident]:
    """The topic, and the ident of the item; a given ident must match the stream's, in any spelling."""
    if isinstance(fact, Recorded):
        found = ident_of_stream(fact.stream)
        if ident is not None and (type(ident) is not type(found) or ident.key != found.key):
            raise BadInput(f"{fact.stream!r} is about {found}, not about {ident}")
        return fact.topic, ident or found
    if ident is None:
        raise BadInput(
            f"{fact!r} alone does not tell which item it is about: give an ident, or a recorded event"
        )
    level = _level(fact.rpartition(".")[0])
    if level is not None and type(ident) is not level.IDENT:
        raise BadInput(f"{fact!r} needs a {level.IDENT.__name__}; {ident} is a {type(ident).__name__}")
    return fact, ident


def _refuse(what: str, taken: str, keys: Iterable[str], given: Mapping[str, Any] | None) -> None:
    if conflicts := sorted(set(keys).intersection(given or ())):
        raise BadInput(f"{what} cannot override {taken}: {conflicts}")


def _named(event: ExternalEvent, name: str, fact: Recorded | str) -> ExternalEvent:
    """The event under one of its names, with containers of its own."""
    own = replace(event, name=name, resource={**event.resource}, payload={**event.payload})
    if not isinstance(fact, Recorded):
        return own
    place = f"{name}#{fact.stream}#{fact.version}#{fact.recorded_at.isoformat()}"
    return replace(own, occurred=fact.recorded_at, id=uuid5(NAMESPACE_URL, place))
