"""Routes: a stream is always in one topic, Kafka allows each name, and no two names are one to Kafka."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafkas_murmur2

from consumers.kafka.routes import Routes, dead_letters, domain_of, murmur2, partition_of
from ledger import BadName

NAME = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), max_size=120)


@pytest.mark.parametrize(
    ("stream", "topic"),
    [
        ("job/a", "ledger.jobs"),
        ("batch/a/0", "ledger.jobs"),
        ("queue/fast", "ledger.jobs"),
        ("schedule/nightly", "ledger.jobs"),
        ("job_key/k", "ledger.jobs"),
        ("operation/embed", "ledger.jobs"),
        ("machine/payment/1", "ledger.machines"),
        ("lsm.strip/p/1/2/3", "ledger.lsm"),
        ("psoct.mosaic/p/1", "ledger.psoct"),
        ("payment/7", "ledger.payment"),
        ("purchase_order/7", "ledger.purchase_order"),
        ("purchase-order.line/7", "ledger.purchase-order"),
        ("orders.eu/7", "ledger.orders"),
        ("Orders/7", "ledger.x-orders-b7e8acdd522e"),
        ("checkpoint/7", "ledger.x-checkpoint-"),
        ("job_states/7", "ledger.x-job-states-"),
        ("views_in_state/7", "ledger.x-views-in-state-"),
        ("x-y/7", "ledger.x-x-y-"),
        ("ß/7", "ledger.x-"),
        ("/7", "ledger.x-e3b0c44298fc"),
    ],
)
def test_the_topic_of_a_stream(stream: str, topic: str) -> None:
    found = Routes().topic_of(stream)
    assert found == topic or (topic.endswith("-") and re.fullmatch(re.escape(topic) + "[0-9a-f]{12}", found))


@given(NAME, NAME)
def test_kafka_allows_each_topic(category: str, key: str) -> None:
    routes = Routes("p" * 60)
    topic = routes.topic_of(f"{category}/{key}")
    assert topic == routes.topic_of(f"{category}/other")
    for each in (topic, f"{topic}.states", dead_letters(topic, "g" * 100)):
        assert re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", each)


@given(NAME, NAME)
def test_no_two_names_are_one(one: str, other: str) -> None:
    """Kafka refuses a topic that differs from another only in `.` against `_`."""
    routes = Routes()
    names = {routes.checkpoint, routes.in_state, routes.progress}
    for domain in {domain_of(one), domain_of(other)}:
        names |= {routes.topic(domain), routes.states(domain)}
    assert len({name.replace(".", "_") for name in names}) == len(names)


@pytest.mark.parametrize("prefix", ["", "-a", "a/b", "p" * 61, "ü", "a b", "a\n"])
def test_a_prefix_that_kafka_does_not_allow_is_refused(prefix: str) -> None:
    with pytest.raises(BadName):
        Routes(prefix)


def test_a_group_that_kafka_does_not_allow_is_refused() -> None:
    with pytest.raises(BadName):
        dead_letters("ledger.jobs", "my group")


@given(st.binary(max_size=70), st.integers(1, 1000))
def test_the_partition_of_a_key_is_that_of_other_clients(key: bytes, partitions: int) -> None:
    assert murmur2(key) == kafkas_murmur2(key)
    assert 0 <= partition_of(key, partitions) < partitions


@pytest.mark.parametrize(("key", "known"), [(b"21", -973932308), (b"foobar", -790332482)])
def test_the_hash_is_that_of_the_client_in_java(key: bytes, known: int) -> None:
    assert murmur2(key) == known & 0xFFFFFFFF


def test_which_topics_have_events() -> None:
    routes = Routes("team.a")
    assert routes.is_events("team.a.jobs")
    for other in ("team.a.checkpoint", "team.a.jobs.states", "team.a.views.in_state", "team.b.jobs"):
        assert not routes.is_events(other)
