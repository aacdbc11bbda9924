"""Facts outside: the complete list of their names, and the envelopes in which they leave."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from ledger import BadInput, Ledger, Recorded
from ledger.domain.known import KNOWN
from ledger.log.cursor import Checkpoint
from ledger.pipelines import PIPELINES, LSMChannelId, LSMSliceId, LSMStateService, LSMStripId
from ledger.pipelines.external import (
    all_external_names,
    external_event,
    external_events,
    external_names,
    ident_of_stream,
    provenance,
    topic_of,
)
from ledger.pipelines.ident import Ident
from ledger.pipelines.psoct import OCTBatchId, OCTMosaicId, OCTProjectId, OCTSliceId

EXTERNAL_NAMES = all_external_names()
AT = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
STRIP = LSMStripId("brain_7", 1, 2, 3)

# The list of spec S0-70, word for word, and the one name that its convention adds.
PSOCT, LSM = "linc.opticstream.psoct", "linc.opticstream.lsm"
COMPLETE = {
    *(f"{LSM}.strip.{state}" for state in ("ready", "processed", "compressed", "uploaded", "archived")),
    *(f"{LSM}.channel.{state}" for state in ("ready", "mip_stitched", "volume_stitched", "volume_uploaded")),
    *(f"{PSOCT}.batch.{state}" for state in ("ready", "complexed", "processed", "archived", "uploaded")),
    *(f"{PSOCT}.mosaic.{state}" for state in ("ready", "volume_stitched", "volume_uploaded")),
    f"{PSOCT}.mosaic.enface_uploaded",
    f"{PSOCT}.mosaic.uploaded",
    f"{PSOCT}.slice.ready",
    f"{PSOCT}.slice.registered",
}
CONVENTIONAL = f"{PSOCT}.mosaic.enface_stitched"


def recorded(topic: str, stream: str, version: int = 4, position: int = 9, at: datetime = AT) -> Recorded:
    return Recorded(position, stream, version, topic, 1, "{}", None, None, at)


# Names.


def test_the_names_are_those_of_the_list_and_the_convention() -> None:
    names = [name for names in EXTERNAL_NAMES.values() for name in names]
    assert len(names) == len(set(names)) == 22
    assert set(names) == COMPLETE | {CONVENTIONAL}


@pytest.mark.parametrize(
    ("topic", "names"),
    [
        ("lsm.strip.created", [f"{LSM}.strip.ready"]),
        ("lsm.strip.completed", [f"{LSM}.strip.processed"]),
        ("lsm.channel.ready", [f"{LSM}.channel.ready"]),
        ("psoct.batch.created", [f"{PSOCT}.batch.ready"]),
        ("psoct.batch.completed", [f"{PSOCT}.batch.processed"]),
        ("psoct.mosaic.enface_stitched", [CONVENTIONAL, f"{PSOCT}.mosaic.uploaded"]),
        ("psoct.mosaic.enface_uploaded", [f"{PSOCT}.mosaic.enface_uploaded"]),
        ("psoct.slice.registered", [f"{PSOCT}.slice.registered"]),
    ],
)
def test_a_topic_has_its_names_and_a_name_its_topic(topic: str, names: list[str]) -> None:
    assert list(external_names(topic)) == names
    assert [topic_of(name) for name in names] == [topic] * len(names)


@pytest.mark.parametrize(
    "topic",
    [
        *("lsm.strip.touched", "lsm.strip.failed", "lsm.strip.reset", "lsm.channel.created"),
        *("lsm.slice.completed", "lsm.project.planned", "psoct.batch.enface_processed"),
        *("psoct.slice.uploaded", "psoct.mosaic.completed", "", "lsm", "another.topic"),
    ],
)
def test_most_topics_have_none(topic: str) -> None:
    assert external_names(topic) == ()
    assert topic_of(f"linc.opticstream.{topic}") is None


def test_every_topic_that_is_named_is_one_that_is_recorded() -> None:
    recorded_by_readiness = {topic for topic in EXTERNAL_NAMES if topic.endswith(".ready")}
    gates = [gate for name in ("lsm", "psoct") for gate in PIPELINES[name].gates]
    assert recorded_by_readiness == {gate.readiness.CATEGORY for gate in gates}
    assert set(EXTERNAL_NAMES) <= set(KNOWN.events)


# Envelopes.


@pytest.mark.parametrize(
    ("topic", "ident", "payload"),
    [
        (
            "lsm.strip.compressed",
            STRIP,
            {"strip_ident": {"project_name": "brain_7", "slice_id": 1, "channel_id": 2, "strip_id": 3}},
        ),
        (
            "lsm.channel.ready",
            LSMChannelId("p", 1, 2),
            {"channel_ident": {"project_name": "p", "slice_id": 1, "channel_id": 2}},
        ),
        (
            "psoct.batch.archived",
            OCTBatchId("p", 1, 2, 3),
            {"batch_ident": {"project_name": "p", "slice_id": 1, "mosaic_id": 2, "batch_id": 3}},
        ),
        (
            "psoct.mosaic.ready",
            OCTMosaicId("p", 1, 2),
            {"mosaic_ident": {"project_name": "p", "slice_id": 1, "mosaic_id": 2}},
        ),
        ("psoct.slice.ready", OCTSliceId("p", 1), {"slice_ident": {"project_name": "p", "slice_id": 1}}),
    ],
)
def test_an_envelope_says_who_and_nothing_else(topic: str, ident: Ident, payload: dict[str, Any]) -> None:
    event = external_event(topic, ident)
    assert event.name == external_names(topic)[0]
    assert event.resource == {
        "prefect.resource.id": str(ident),
        "linc.opticstream.project": ident.project_name,
    }
    assert event.payload == payload
    assert (event.occurred, event.id) == (None, None)


def test_defaults_and_extras_come_besides() -> None:
    event = external_event(
        "lsm.strip.uploaded",
        STRIP,
        resource_defaults={"linc.opticstream.system": "lsm", "host": "any"},
        payload_defaults={"step": "upload"},
        extra_resource={"host": "node-01"},
        extra_payload={"path": "out.zarr"},
    )
    assert event.resource == {
        "prefect.resource.id": str(STRIP),
        "linc.opticstream.project": "brain_7",
        "linc.opticstream.system": "lsm",
        "host": "node-01",
    }
    assert list(event.payload) == ["strip_ident", "step", "path"]


@pytest.mark.parametrize("key", ["prefect.resource.id", "linc.opticstream.project"])
def test_the_shared_resource_keys_are_not_for_others(key: str) -> None:
    with pytest.raises(ValueError, match=r"^extra_resource cannot override shared resource keys: \['"):
        external_event("lsm.strip.uploaded", STRIP, extra_resource={key: "x", "free": "y"})
    with pytest.raises(BadInput, match=r"^resource_defaults cannot override shared resource keys"):
        external_event("lsm.strip.uploaded", STRIP, resource_defaults={key: "x"})


def test_the_payload_is_not_for_others() -> None:
    for key in ("strip_ident", "step"):
        with pytest.raises(ValueError, match=r"^extra_payload cannot override base payload keys: "):
            external_event(
                "lsm.strip.uploaded", STRIP, payload_defaults={"step": 1}, extra_payload={key: 1, "free": 2}
            )
    with pytest.raises(BadInput, match=r"^payload_defaults cannot override base payload keys"):
        external_event("lsm.strip.uploaded", STRIP, payload_defaults={"strip_ident": {}})


def test_a_recorded_fact_tells_who_when_and_which() -> None:
    fact = recorded("lsm.strip.completed", "lsm.strip/a-b/1/2/3")
    event = external_event(fact)
    assert event == external_event(fact)
    assert event.resource["prefect.resource.id"] == "project_name='a-b' slice_id=1 channel_id=2 strip_id=3"
    assert event.occurred == AT
    others = [
        recorded("lsm.strip.completed", "lsm.strip/a-b/1/2/4"),
        recorded("lsm.strip.completed", "lsm.strip/a-b/1/2/3", version=5),
        recorded("lsm.strip.completed", "lsm.strip/a-b/1/2/3", at=AT.replace(microsecond=679)),
        recorded("lsm.strip.uploaded", "lsm.strip/a-b/1/2/3"),
    ]
    assert len({external_event(each).id for each in [fact, *others]}) == 5


def test_a_recorded_fact_can_be_told_in_another_spelling_of_its_project() -> None:
    fact = recorded("lsm.strip.completed", "lsm.strip/a-b/1/2/3")
    event = external_event(fact, LSMStripId("A_b", 1, 2, 3))
    assert event.resource["linc.opticstream.project"] == "A_b"
    assert event.payload["strip_ident"]["project_name"] == "A_b"
    for wrong in (LSMStripId("a-b", 1, 2, 4), LSMStripId("ab", 1, 2, 3), OCTBatchId("a-b", 1, 2, 3)):
        with pytest.raises(BadInput, match=r"'lsm.strip/a-b/1/2/3' is about .*, not about"):
            external_event(fact, wrong)


def test_a_fact_with_two_names_leaves_under_both() -> None:
    fact = recorded("psoct.mosaic.enface_stitched", "psoct.mosaic/p/1/2")
    new, old = external_events(fact, extra_payload={"path": "x"})
    assert (new.name, old.name) == (CONVENTIONAL, f"{PSOCT}.mosaic.uploaded")
    assert new == external_event(fact, extra_payload={"path": "x"})
    assert (new.resource, new.payload, new.occurred) == (old.resource, old.payload, old.occurred)
    assert new.id != old.id
    new.payload["mine"] = 1
    assert "mine" not in old.payload


def test_a_fact_without_a_name_stays_in_the_house() -> None:
    fact = recorded("lsm.strip.touched", "lsm.strip/p/1/2/3")
    assert external_events(fact) == ()
    assert external_events("user.topic", STRIP) == ()
    with pytest.raises(
        BadInput, match=r"'lsm\.strip\.touched' has no external name; topics that have one: lsm"
    ):
        external_event(fact)


@pytest.mark.parametrize(
    ("topic", "ident"),
    [
        ("lsm.strip.completed", LSMChannelId("p", 1, 2)),
        ("lsm.strip.completed", OCTBatchId("p", 1, 2, 3)),
        ("psoct.slice.ready", LSMSliceId("p", 1)),
        ("psoct.slice.ready", OCTProjectId("p")),
        ("lsm.channel.ready", STRIP),
    ],
)
def test_a_topic_is_told_of_its_own_level(topic: str, ident: Ident) -> None:
    with pytest.raises(BadInput, match=f"needs a .*Id; .* is a {type(ident).__name__}"):
        external_event(topic, ident)


def test_a_topic_alone_is_not_enough() -> None:
    with pytest.raises(BadInput, match="does not tell which item it is about"):
        external_event("lsm.strip.completed")


def test_an_auditor_can_ask_for_the_place() -> None:
    fact = recorded("lsm.strip.completed", "lsm.strip/p/1/2/3")
    assert external_event(fact, extra_payload=provenance(fact)).payload["ledger"] == {
        "stream": "lsm.strip/p/1/2/3",
        "version": 4,
        "position": 9,
        "recorded_at": "2026-01-02T03:04:05.000678+00:00",
    }


def test_what_is_recorded_has_an_envelope(service: LSMStateService, log: Ledger) -> None:
    """Given a strip that was compressed, when the log is told outside, then the names come in its order."""
    with service.open_strip("Brain/%_7", slice_id=1, channel_id=2, strip_id=3) as strip:
        strip.mark_completed()
        strip.set_compressed()
    facts = log.tail.read(Checkpoint(log.identity.ledger), 100)
    told = [event for fact in facts for event in external_events(fact)]
    assert [event.name for event in told] == [
        f"{LSM}.strip.{word}" for word in ("ready", "processed", "compressed")
    ]
    assert {event.resource["linc.opticstream.project"] for event in told} == {"brain/%-7"}
    assert len({event.id for event in told}) == 3


# Streams.


@pytest.mark.parametrize(
    ("stream", "ident"),
    [
        ("lsm.strip/a%2Fb/1/2/3", LSMStripId("a/b", 1, 2, 3)),
        ("lsm.channel/p/1/2", LSMChannelId("p", 1, 2)),
        ("lsm.channel.ready/p/1/2", LSMChannelId("p", 1, 2)),
        ("psoct.mosaic.ready/p/1/2", OCTMosaicId("p", 1, 2)),
        ("psoct.slice.ready/p/1", OCTSliceId("p", 1)),
        ("psoct.project/p", OCTProjectId("p")),
    ],
)
def test_a_stream_says_who_it_is_about(stream: str, ident: Ident) -> None:
    assert ident_of_stream(stream) == ident
    assert type(ident_of_stream(stream)) is type(ident)


@pytest.mark.parametrize("stream", ["job/1", "lsm.strip", "lsm.strip/p/1", "lsm.strip/p/1/2/x", "lsm/p", ""])
def test_a_stream_of_something_else_is_refused(stream: str) -> None:
    with pytest.raises(BadInput):
        ident_of_stream(stream)
