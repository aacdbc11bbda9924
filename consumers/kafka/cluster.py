"""A Kafka cluster: how to reach it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from ledger import KafkaUnavailable


@dataclass(frozen=True, slots=True)
class Cluster:
    """How to reach a cluster. bootstrap: addresses of brokers, HOST:PORT, separated by commas."""

    bootstrap: str

    @classmethod
    def of(cls, text: str | None = None) -> Cluster:
        """The cluster that a text names, else LEDGER_KAFKA. Raises KafkaUnavailable where neither does."""
        if found := text or os.environ.get("LEDGER_KAFKA"):
            return cls(found)
        raise KafkaUnavailable("no cluster is named: set LEDGER_KAFKA=HOST:PORT, or give --kafka HOST:PORT")

    def options(self) -> dict[str, Any]:
        """Keyword arguments for any client of kafka-python."""
        return dict(
            bootstrap_servers=self.bootstrap,
            reconnect_backoff_ms=50,
            reconnect_backoff_max_ms=500,
            request_timeout_ms=5_000,
            retry_backoff_ms=5,
            bootstrap_timeout_ms=5_000,
        )

    @contextmanager
    def admin(self) -> Iterator[Any]:
        """An admin client, while the block runs. Raises KafkaUnavailable."""
        try:
            admin = KafkaAdminClient(**self.options())
        except KafkaError as error:
            raise KafkaUnavailable(self.diagnose() or str(error)) from error
        try:
            yield admin
        except KafkaError as error:
            raise KafkaUnavailable(f"{type(error).__name__}: {error}") from error
        finally:
            admin.close()

    def diagnose(self) -> str | None:
        """Why the cluster cannot be reached; None where that is not known."""
        return None
