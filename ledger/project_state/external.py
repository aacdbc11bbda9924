"""
Facts outside: their names `linc.opticstream.<pipeline>.<level>.<state>`, their envelopes (spec S0-70, S0-71).

    external_names("lsm.strip.completed")     ("linc.opticstream.lsm.strip.processed",)
    external_event(recorded)                  what an automation that listens to that name expects

A fact without a name outside is nobody's business there: it was touched, reset, failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Final
from uuid import NAMESPACE_URL, UUID, uuid5

from ..errors import BadInput
from ..frozen import FrozenDict
from ..names import split_name
from ..recorded import Recorded
from .ident import Ident
from .lsm import LSM
from .open_item import OpenItem
from .psoct import OCT

ROOT: Final = "linc.opticstream"
RESOURCE_ID: Final = "prefect.resource.id"
PROJECT: Final = "linc.opticstream.project"
SHARED: Final = frozenset({RESOURCE_ID, PROJECT})
"""The resource keys that every event has; nobody may set them otherwise."""

_STATES: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "lsm.strip": {
        "created": ("ready",),
        "completed": ("processed",),
        "compressed": ("compressed",),
        "uploaded": ("uploaded",),
        "archived": ("archived",),
    },
    "lsm.channel": {
        "ready": ("ready",),
        "mip_stitched": ("mip_stitched",),
        "volume_stitched": ("volume_stitched",),
        "volume_uploaded": ("volume_uploaded",),
    },
    "psoct.batch": {
        "created": ("ready",),
        "complexed": ("complexed",),
        "completed": ("processed",),
        "archived": ("archived",),
        "uploaded": ("uploaded",),
    },
    "psoct.mosaic": {
        "ready": ("ready",),
        # The second is what automations of the origin listen to, by a mistake of its constants.
        "enface_stitched": ("enface_stitched", "uploaded"),
        "volume_stitched": ("volume_stitched",),
        "enface_uploaded": ("enface_uploaded",),
        "volume_uploaded": ("volume_uploaded",),
    },
    "psoct.slice": {
        "ready": ("ready",),
        "registered": ("registered",),
    },
}
# The last word of a topic of the level, and the states that it is known by outside.

EXTERNAL_NAMES: Final[Mapping[str, tuple[str, ...]]] = FrozenDict(
    {
        f"{level}.{fact}": tuple(f"{ROOT}.{level}.{state}" for state in states)
        for level, facts in _STATES.items()
        for fact, states in facts.items()
    }
)
"""The names outside of each topic that has any, the conventional one first."""
_TOPICS: Final = {name: topic for topic, names in EXTERNAL_NAMES.items() for name in names}
_LEVELS: Final[Mapping[str, type[OpenItem[Any]]]] = {level.CATEGORY: level for level in (*LSM, *OCT)}


@dataclass(frozen=True, slots=True)
class ExternalEvent:
    """An event as it leaves the house: the keywords of Prefect's `emit_event`; `name` is `event` there.

    id: the same each time one fact is told under one name, so that who is told twice can see it; occurred:
    when the ledger recorded the fact. Both are None where no recorded fact was given.
    """

    name: str
    resource: dict[str, str]
    payload: dict[str, Any]
    occurred: datetime | None = None
    id: UUID | None = None


def external_names(topic: str) -> tuple[str, ...]:
    """The names of a fact outside, the conventional one first; most topics have none (spec S0-70)."""
    return EXTERNAL_NAMES.get(topic, ())


def topic_of(external_name: str) -> str | None:
    """The topic that has this name outside; None where there is none. The inverse of `external_names`."""
    return _TOPICS.get(external_name)


def external_event(
    fact: Recorded | str,
    ident: Ident | None = None,
    *,
    resource_defaults: Mapping[str, str] | None = None,
    payload_defaults: Mapping[str, Any] | None = None,
    extra_resource: Mapping[str, str] | None = None,
    extra_payload: Mapping[str, Any] | None = None,
) -> ExternalEvent:
    """A fact as its first name outside tells it (spec S0-71): a recorded one, or a topic with an ident.

    ident: who it is about. By default it is read from the stream's name, and its project is spelt as that is;
    give one to keep another spelling. defaults: what all events of a sender carry; extras: what this one
    does. An extra of the resource replaces a default. Raises BadInput, a ValueError, for a fact without a
    name outside, an ident of something else, and what would replace the shared keys or the payload's.
    """
    topic, ident = _subject(fact, ident)
    if not external_names(topic):
        raise BadInput(f"{topic!r} has no name outside; those that have: {', '.join(sorted(EXTERNAL_NAMES))}")
    for what, given in (("extra_resource", extra_resource), ("resource_defaults", resource_defaults)):
        _refuse(what, "shared resource keys", SHARED, given)
    resource = {RESOURCE_ID: str(ident), PROJECT: ident.project_name}
    payload: dict[str, Any] = {f"{topic.split('.')[1]}_ident": asdict(ident)}
    for what, added in (("payload_defaults", payload_defaults), ("extra_payload", extra_payload)):
        _refuse(what, "base payload keys", payload, added)
        payload |= added or {}
    resource |= {**(resource_defaults or {}), **(extra_resource or {})}
    return _named(ExternalEvent("", resource, payload), external_names(topic)[0], fact)


def external_events(
    fact: Recorded | str, ident: Ident | None = None, **settings: Mapping[str, Any] | None
) -> tuple[ExternalEvent, ...]:
    """A fact under each of its names outside, for listeners old and new; none where it has none.

    settings: those of `external_event`.
    """
    names = external_names(fact.topic if isinstance(fact, Recorded) else fact)
    if not names:
        return ()
    event = external_event(fact, ident, **settings)
    return tuple(_named(event, name, fact) for name in names)


def provenance(recorded: Recorded) -> dict[str, Any]:
    """Where the ledger holds a fact, for an audit: `extra_payload=provenance(recorded)`.

    Not in every payload, because spec S0-71 says what is in there, and listeners may check that.
    """
    place = {"stream": recorded.stream, "version": recorded.version, "position": recorded.position}
    return {"ledger": {**place, "recorded_at": recorded.recorded_at.isoformat()}}


def ident_of_stream(stream: str) -> Ident:
    """Who the stream of this name is about. Raises BadInput where it is none of a project's items."""
    category, parts = split_name(stream)
    level = _level(category)
    if level is None or not parts:
        raise BadInput(f"{stream!r} is no stream of a project's item; its category is {category!r}")
    return level.IDENT(*level.key_of(parts))  # type: ignore[arg-type]


def _level(category: str) -> type[OpenItem[Any]] | None:
    """The level whose items the streams of a category are about; readiness has streams of its own."""
    return _LEVELS.get(category.removesuffix(".ready"))


def _subject(fact: Recorded | str, ident: Ident | None) -> tuple[str, Ident]:
    """The topic, and who it is about; an ident that is given must be the stream's, in any spelling."""
    if isinstance(fact, Recorded):
        found = ident_of_stream(fact.stream)
        if ident is not None and (type(ident) is not type(found) or ident.key != found.key):
            raise BadInput(f"{ident} is not who {fact.stream!r} is about, which is {found}")
        return fact.topic, ident or found
    if ident is None:
        raise BadInput(f"{fact!r} alone does not say who it is about; give an ident, or a recorded event")
    level = _level(fact.rpartition(".")[0])
    if level is not None and type(ident) is not level.IDENT:
        raise BadInput(f"{fact!r} is about a {level.IDENT.__name__}; {ident} is a {type(ident).__name__}")
    return fact, ident


def _refuse(what: str, taken: str, keys: Iterable[str], given: Mapping[str, Any] | None) -> None:
    if conflicts := sorted(set(keys).intersection(given or ())):
        raise BadInput(f"{what} cannot override {taken}: {conflicts}")


def _named(event: ExternalEvent, name: str, fact: Recorded | str) -> ExternalEvent:
    """The event under one of its names; the containers are its own."""
    own = replace(event, name=name, resource={**event.resource}, payload={**event.payload})
    if not isinstance(fact, Recorded):
        return own
    place = f"{name}#{fact.stream}#{fact.version}#{fact.recorded_at.isoformat()}"
    return replace(own, occurred=fact.recorded_at, id=uuid5(NAMESPACE_URL, place))
