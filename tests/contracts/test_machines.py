"""The three keepers of moves held to one contract: in a ledger, in a transaction of the user's, in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from ledger import Ledger
from ledger.machines.keeping import InLedger, InMemory, InTransaction, Keeper
from ledger.store.embedded import Embedded
from tests.contracts.machines import NUMBERS, STREAM, KeeperContract, Kept, just, ledger_of_its_own


@pytest.fixture(scope="module")
def shared(postgres: Embedded, template: str) -> Iterator[tuple[Ledger, str]]:
    with ledger_of_its_own(postgres, template) as made:
        yield made


@pytest.fixture
def key() -> tuple[str]:
    return (f"PM{next(NUMBERS)}",)


class TestInLedger(KeeperContract):
    @pytest.fixture
    def kept(self, shared: tuple[Ledger, str], key: tuple[str]) -> Kept:
        keeper = InLedger(shared[0], STREAM, key)
        return Kept(lambda: just(keeper), lambda: just(InLedger(shared[0], STREAM, key)))


class TestInTransaction(KeeperContract):
    @pytest.fixture(params=[True, False], ids=["autocommit", "transactional"])
    def users(
        self, shared: tuple[Ledger, str], request: pytest.FixtureRequest
    ) -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(shared[1], autocommit=request.param) as connection:
            yield connection

    @pytest.fixture
    def kept(self, shared: tuple[Ledger, str], key: tuple[str], users: psycopg.Connection[Any]) -> Kept:
        log, _ = shared

        @contextmanager
        def acting() -> Iterator[Keeper]:
            with log.transaction(users) as joined:
                yield InTransaction(joined, STREAM, key)
            assert users.info.transaction_status == TransactionStatus.IDLE

        return Kept(acting, lambda: just(InLedger(log, STREAM, key)))


class TestInMemory(KeeperContract):
    @pytest.fixture
    def kept(self, key: tuple[str]) -> Kept:
        keeper = InMemory(STREAM, key)
        return Kept(lambda: just(keeper), lambda: just(keeper))
