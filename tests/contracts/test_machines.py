"""The three keepers of moves held to one contract: in a ledger, in a transaction of the user's, in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from ledger import Ledger
from ledger.embedded import Embedded
from ledger.machines.backends import Backend, MemoryBackend, backend_at
from tests.contracts.machines import NUMBERS, STREAM, KeeperContract, Kept, just, ledger_of_its_own
from tests.contracts.nested_moves import NestedMovesContract


@pytest.fixture(scope="module")
def shared(postgres: Embedded, template: str) -> Iterator[tuple[Ledger, str]]:
    with ledger_of_its_own(postgres, template) as made:
        yield made


@pytest.fixture
def key() -> tuple[str]:
    return (f"PM{next(NUMBERS)}",)


class Here:
    """The backend of an object wherever it is used, as a machine chooses it at each use."""

    def __init__(self, place: Any, key: tuple[str]) -> None:
        self._place, self._key = place, key

    def __getattr__(self, name: str) -> Any:
        return getattr(backend_at(self._place, STREAM, self._key), name)


def cousin_in(log: Ledger) -> Backend:
    """Another object."""
    return Here(log, (f"PM{next(NUMBERS)}",))


class TestInLedger(KeeperContract, NestedMovesContract):
    @pytest.fixture
    def kept(self, shared: tuple[Ledger, str], key: tuple[str]) -> Kept:
        keeper = Here(shared[0], key)

        def anew() -> Backend:
            return Here(shared[0], key)

        return Kept(lambda: just(keeper), lambda: just(anew()), anew, lambda: cousin_in(shared[0]))


class TestInTransaction(KeeperContract, NestedMovesContract):
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
        def acting() -> Iterator[Backend]:
            with log.transaction(users) as joined:
                yield Here(joined, key)
            assert users.info.transaction_status == TransactionStatus.IDLE

        def anew() -> Backend:
            return Here(log, key)

        return Kept(acting, lambda: just(anew()), anew, lambda: cousin_in(log))


class TestInMemory(KeeperContract, NestedMovesContract):
    @pytest.fixture
    def kept(self, key: tuple[str]) -> Kept:
        keeper = MemoryBackend(STREAM, key)
        return Kept(
            lambda: just(keeper),
            lambda: just(keeper),
            lambda: MemoryBackend(STREAM, key),
            lambda: MemoryBackend(STREAM, (f"PM{next(NUMBERS)}",)),
            lambda: keeper,
        )
