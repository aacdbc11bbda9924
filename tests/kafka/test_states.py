"""Topics of states and views: the last record of each key is what the ledger and its views say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition

from consumers.kafka.cluster import Cluster
from consumers.kafka.relay.states import StateTopics, ViewTopics
from consumers.kafka.relay_verify import verify
from ledger import BadInput, Body, Ledger, split_name
from ledger.domain.state import dump
from ledger.jobs import Jobs, OpenJob
from ledger.pipelines import LSMStateService
from projections.engine.projector import Projector, views_named
from projections.feeds import ProgressChanges, StateChanges
from projections.shipped import load
from tests.kafka.conftest import SharedBroker
from tests.kafka.relaying import PARTITIONS, relay_all
from tests.kafka.test_relay_command import pledger


def records(cluster: Cluster, topic: str) -> list[tuple[str, Any, dict[str, bytes]]]:
    """Key, value and headers of all committed records of a topic, by partition and offset."""
    options = {"enable_auto_commit": False, "isolation_level": "read_committed"}
    consumer: Any = KafkaConsumer(**cluster.options() | options)
    places, found = [TopicPartition(topic, n) for n in range(PARTITIONS)], []
    consumer.assign(places)
    consumer.seek_to_beginning(*places)
    ends = consumer.end_offsets(places)
    while any(consumer.position(place) < ends[place] for place in places):
        for page in consumer.poll(timeout_ms=200).values():
            found += [
                (one.key.decode(), one.value and json.loads(one.value), dict(one.headers)) for one in page
            ]
    consumer.close()
    return found


def work(log: Ledger) -> None:
    """Some work of two domains."""
    jobs, service = Jobs(log), LSMStateService(log)
    for n in range(4):
        job = jobs.submit("ping", {"n": n})
        if n % 2:
            jobs.cancel(job)
        with service.open_strip("mouse 12", slice_id=1, strip_id=n, channel_id=0) as strip:
            strip.mark_completed()


def test_states_and_views(log: Ledger, broker: SharedBroker, kafka_name: str) -> None:
    """Given a relay with both, then a reader of them knows what a reader of the ledger knows."""
    cluster = Cluster.of(broker.bootstrap)
    load()
    projector = Projector(log, views_named(["in_state", "progress"]))
    work(log)
    log.append("torch/a", Body("torch.lit", 1, "{}"))  # of a category that nobody knows
    projector.catch_up()
    derived = [StateTopics(log, kafka_name), ViewTopics(log, kafka_name)]
    relay_all(log, cluster, kafka_name, derived=derived, block_events=5)
    work(log)
    projector.catch_up()
    relay_all(log, cluster, kafka_name, derived=derived, block_events=5)

    states = {key: value for key, value, _ in records(cluster, f"{kafka_name}.jobs.states")}
    names = [info.stream for info in log.streams("job/")]
    assert states.keys() == set(names)
    for name in names:
        stream = log.load(OpenJob, *split_name(name)[1])
        value = states[stream.name]
        assert (value["version"], value["status"]) == (stream.version, stream.state.status)
        assert value["state"] == json.loads(dump(stream.state))
    assert len(records(cluster, f"{kafka_name}.lsm.states")) >= 4

    moves = {
        int(headers["ce_id"]): value for _, value, headers in records(cluster, f"{kafka_name}.views.in_state")
    }
    wanted = [change for page in pages(StateChanges(log)) for change in page]
    assert [(at, moves[at]["stream"], moves[at]["before"], moves[at]["status"]) for at in sorted(moves)] == [
        (one.position, one.stream, one.before, one.status) for one in wanted
    ]
    entered = [
        value["stream"]
        for _, value, headers in records(cluster, f"{kafka_name}.views.in_state")
        if headers["ce_ledgerstatus"] == b"cancelled"
    ]
    assert len(entered) == 4

    sets = {key: value for key, value, _ in records(cluster, f"{kafka_name}.views.progress")}
    for change in [one for page in pages(ProgressChanges(log)) for one in page]:
        value = sets[f"{change.category} {change.parent}"]
        assert (value["done"], value["total"], value["position"]) == (
            change.done,
            change.total,
            change.position,
        )
    assert sets
    assert verify(log, cluster, kafka_name).difference is None


@pytest.mark.slow
def test_a_ledger_that_is_older_than_its_topics_of_states(
    dsn: str, log: Ledger, broker: SharedBroker, kafka_name: str
) -> None:
    """Given a log that was published without states, when it is replayed, then all states are there.

    Each set is told once, and not once a block.
    """
    cluster, again = Cluster.of(broker.bootstrap), f"{kafka_name}-again"
    load()
    for _ in range(3):
        work(log)
    relay_all(log, cluster, kafka_name)
    Projector(log, views_named(["in_state", "progress"])).catch_up()
    pledger(dsn, broker, "replay", "--prefix", again, "--partitions", str(PARTITIONS), "--states", "--views")
    states = {key for name in ("jobs", "lsm") for key, _, _ in records(cluster, f"{again}.{name}.states")}
    assert states == {info.stream for info in log.streams()}
    moves = records(cluster, f"{again}.views.in_state")
    assert len(moves) == len([one for page in pages(StateChanges(log)) for one in page])

    derived = ViewTopics(log, f"{kafka_name}-small")
    relay_all(log, cluster, f"{kafka_name}-small", derived=[derived], block_events=5)
    sets = [one for page in pages(ProgressChanges(log)) for one in page]
    for prefix in (again, f"{kafka_name}-small"):
        told = [key for key, _, _ in records(cluster, f"{prefix}.views.progress")]
        assert sorted(told) == sorted(f"{one.category} {one.parent}" for one in sets)


def pages(feed: Any) -> list[Any]:
    """All that a feed delivers now."""
    found = []
    while page := feed.poll():
        found.append(page)
    return found


def test_topics_of_views_need_the_view(log: Ledger) -> None:
    with pytest.raises(BadInput, match="pledger views follow progress"):
        ViewTopics(log)
