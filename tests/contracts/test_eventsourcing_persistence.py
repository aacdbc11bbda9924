"""
The persistence suites that the `eventsourcing` library ships, as they are.

Its transcoder suite is of its own class, which the factory hands out unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from eventsourcing.persistence import InfrastructureFactory
from eventsourcing.tests import persistence as suites
from eventsourcing.utils import Environment

from ledger.store import LedgerFactory
from ledger.store.recorders import (
    LedgerAggregateRecorder,
    LedgerApplicationRecorder,
    LedgerProcessRecorder,
    LedgerSnapshotRecorder,
    LedgerTrackingRecorder,
)


class OnTheStore:
    """A factory for each test, on a database of its own."""

    originator_id_type = "uuid"
    factory: Any

    @pytest.fixture(autouse=True)
    def _factory(self, store: dict[str, str]) -> Iterator[None]:
        environment = Environment("suite", {**store, "ORIGINATOR_ID_TYPE": self.originator_id_type})
        self.factory = InfrastructureFactory.construct(environment)
        yield
        self.factory.close()


class TextIds(OnTheStore):
    originator_id_type = "text"

    def new_originator_id(self) -> str:
        return f"suite:{uuid4()}"


class TestAggregateRecorder(OnTheStore, suites.AggregateRecorderTestCase):
    def create_recorder(self) -> LedgerAggregateRecorder:
        return self.factory.aggregate_recorder()


class TestAggregateRecorderWithTextIds(TextIds, suites.AggregateRecorderTestCase):
    def create_recorder(self) -> LedgerAggregateRecorder:
        return self.factory.aggregate_recorder()


class TestAggregateRecorderFromZero(OnTheStore, suites.AggregateRecorderTestCase):
    INITIAL_VERSION = 0

    def create_recorder(self) -> LedgerAggregateRecorder:
        return self.factory.aggregate_recorder()


class TestSnapshotRecorder(OnTheStore, suites.AggregateRecorderTestCase):
    def create_recorder(self) -> LedgerSnapshotRecorder:
        return self.factory.aggregate_recorder(purpose="snapshots")


class TestApplicationRecorder(OnTheStore, suites.ApplicationRecorderTestCase[LedgerApplicationRecorder]):
    def create_recorder(self) -> LedgerApplicationRecorder:
        return self.factory.application_recorder()

    def test_insert_subscribe(self) -> None:
        self.optional_test_insert_subscribe()


class TestApplicationRecorderWithTextIds(
    TextIds, suites.ApplicationRecorderTestCase[LedgerApplicationRecorder]
):
    def create_recorder(self) -> LedgerApplicationRecorder:
        return self.factory.application_recorder()

    def test_insert_subscribe(self) -> None:
        self.optional_test_insert_subscribe()


class TestApplicationRecorderFromZero(
    OnTheStore, suites.ApplicationRecorderTestCase[LedgerApplicationRecorder]
):
    INITIAL_VERSION = 0

    def create_recorder(self) -> LedgerApplicationRecorder:
        return self.factory.application_recorder()

    def test_insert_subscribe(self) -> None:
        self.optional_test_insert_subscribe()


class TestProcessRecorderAsApplicationRecorder(
    OnTheStore, suites.ApplicationRecorderTestCase[LedgerProcessRecorder]
):
    def create_recorder(self) -> LedgerProcessRecorder:
        return self.factory.process_recorder()

    def test_insert_subscribe(self) -> None:
        self.optional_test_insert_subscribe()


class TestTrackingRecorder(OnTheStore, suites.TrackingRecorderTestCase):
    def create_recorder(self) -> LedgerTrackingRecorder:
        return self.factory.tracking_recorder()


class TestProcessRecorderAsTrackingRecorder(OnTheStore, suites.TrackingRecorderTestCase):
    def create_recorder(self) -> LedgerProcessRecorder:
        return self.factory.process_recorder()


class TestProcessRecorder(OnTheStore, suites.ProcessRecorderTestCase):
    def create_recorder(self) -> LedgerProcessRecorder:
        return self.factory.process_recorder()


class TestProcessRecorderWithTextIds(TextIds, suites.ProcessRecorderTestCase):
    def create_recorder(self) -> LedgerProcessRecorder:
        return self.factory.process_recorder()


class TestNonInterleavingNotificationIDs(OnTheStore, suites.NonInterleavingNotificationIDsBaseCase):
    def create_recorder(self) -> LedgerApplicationRecorder:
        return self.factory.application_recorder()


class OtherTrackingRecorder(LedgerTrackingRecorder):
    """What TRACKING_RECORDER_TOPIC may name."""


class TestInfrastructureFactory(suites.InfrastructureFactoryTestCase[LedgerFactory]):
    @pytest.fixture(autouse=True)
    def _environment(self, store: dict[str, str]) -> None:
        self.env = Environment(env=store)

    def expected_factory_class(self) -> type[LedgerFactory]:
        return LedgerFactory

    def expected_aggregate_recorder_class(self) -> type[LedgerAggregateRecorder]:
        return LedgerAggregateRecorder

    def expected_application_recorder_class(self) -> type[LedgerApplicationRecorder]:
        return LedgerApplicationRecorder

    def expected_tracking_recorder_class(self) -> type[LedgerTrackingRecorder]:
        return LedgerTrackingRecorder

    def tracking_recorder_subclass(self) -> type[LedgerTrackingRecorder]:
        return OtherTrackingRecorder

    def expected_process_recorder_class(self) -> type[LedgerProcessRecorder]:
        return LedgerProcessRecorder
