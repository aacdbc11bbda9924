"""The rights in PostgreSQL that the pages recommend suffice for a relay and for a consumer; less does not."""

from __future__ import annotations

import threading
from collections.abc import Callable

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import ledger
from consumers.kafka import MemoryBus
from consumers.kafka.cluster import Cluster
from consumers.kafka.consumer_group.offsets import make_tables
from consumers.kafka.consumer_group.parking import letters
from consumers.kafka.relay.relay import Relay
from consumers.kafka.relay.states import StateTopics, ViewTopics
from ledger import Ledger, NoPermission
from projections.engine.projector import Projector, views_named
from tests.kafka.conftest import SharedBroker
from tests.kafka.oracle import effects, make_table
from tests.kafka.relaying import relay_all
from tests.kafka.test_memory_bus import failing, filled
from tests.kafka.test_states import work
from tests.log.conftest import only

assert only is not None

EFFECTS = "GRANT SELECT, INSERT ON effects TO {}"
GRANTS = (
    "GRANT USAGE ON SCHEMA consumers TO {}",
    "GRANT SELECT ON consumers.consumer_migrations TO {}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON consumers.offsets, consumers.done, consumers.parked TO {}",
)
"""As docs/how-to/consume-from-kafka.md shows them."""


def test_a_relay_needs_the_writer_and_the_reader(
    log: Ledger, only: Callable[[str], str], broker: SharedBroker, kafka_name: str
) -> None:
    cluster = Cluster.of(broker.bootstrap)
    work(log)
    Projector(log, views_named(["progress"])).catch_up()
    with ledger.connect(only("ledger_writer, ledger_reader"), create=False) as allowed:
        derived = [StateTopics(allowed, kafka_name), ViewTopics(allowed, kafka_name)]
        relay_all(allowed, cluster, kafka_name, derived=derived)
        assert allowed.bound() == log.bound()
    for role, lacking in (("ledger_writer", "ledger_reader"), ("ledger_reader", "ledger_writer")):
        with (
            ledger.connect(only(role), create=False) as less,
            pytest.raises(NoPermission, match=f'GRANT "{lacking}" TO'),
        ):
            Relay(less, cluster, prefix=kafka_name).run(threading.Event(), until=1)


def test_a_consumer_needs_its_tables_and_those_of_its_effects(dsn: str, only: Callable[[str], str]) -> None:
    """Given tables that somebody else made, then it consumes, parks and tries again; but not with less."""
    make_table(dsn)
    login = only("pg_read_all_stats")
    user = conninfo_to_dict(login)["user"]
    bus, handler = MemoryBus(), failing(dsn, {5}, attempts=2)
    filled(bus, 30, 3)
    with psycopg.connect(dsn, autocommit=True) as connection:
        make_tables(connection)
        for grant in GRANTS:
            connection.execute(grant.format(user))
        connection.execute(EFFECTS.format(user))
        bus.drain(handler, login)
        assert [one.state for one in letters(connection)] == ["dead"]
        connection.execute(f"REVOKE UPDATE ON consumers.offsets FROM {user}")
    filled(bus, 3, 3)
    assert len(effects(dsn, "some")) == 21  # one of the parked key came before
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied for table offsets"):
        bus.drain(handler, login)
