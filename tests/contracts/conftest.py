"""The environment in which applications of the `eventsourcing` library find the store: two variables."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from eventsourcing.persistence import InfrastructureFactory

from ledger.store import LedgerFactory
from ledger.store.recorders import LedgerProcessRecorder


@pytest.fixture
def store(dsn: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The variables, also set in this process: nothing else is needed."""
    variables = {"PERSISTENCE_MODULE": "ledger.store", "LEDGER_DSN": dsn}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return variables


@pytest.fixture
def made(store: dict[str, str]) -> Iterator[Callable[..., LedgerFactory]]:
    """Makes factories with further variables; they are closed at the end."""
    opened: list[LedgerFactory] = []

    def make(**variables: str) -> LedgerFactory:
        opened.append(InfrastructureFactory.construct(store | variables))  # type: ignore[arg-type]
        return opened[-1]

    yield make
    for factory in opened:
        factory.close()


@pytest.fixture
def recorder(made: Callable[..., LedgerFactory]) -> LedgerProcessRecorder:
    """The recorder that has all abilities, in schema `ledger_stored`."""
    return made().process_recorder()
