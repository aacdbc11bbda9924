"""
Transactions: sends blocks of records, each in one Kafka transaction, and trusts nothing that the client says.

Rules learnt from kafka-python 3.0.12; tests on a real broker show the faults behind the first four:

1. It commits without batches that expired, and reports success for a transaction that its timeout had
   aborted: so flush, then look at *every* future, then commit, and all that within the timeout.
2. Commit, flush and close can hang for ever: each is called in a thread of its own, with a limit, and that
   thread is left behind where it hangs.
3. After an error the producer is given up and not aborted: `close(timeout=0)`; the next one fences it.
4. A producer that was fenced learns it by many exceptions: so every end is the same end, KafkaUnavailable.
5. `retry_backoff_ms` is slept before each transaction that follows closely on another: 5, not 100.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from kafka import KafkaProducer
from kafka.errors import KafkaError, KafkaTimeoutError

from ledger import KafkaUnavailable

from ..cluster import Cluster
from ..envelope import Outgoing

BACKOFF: Final = 5
"""Milliseconds; see rule 5."""
COMPRESSIONS: Final = ("gzip", "lz4", "zstd")
MAX_REQUEST: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits in seconds.

    transaction: the cluster aborts one that nobody ends after this; readers wait as long at most. flush,
    commit: of the two calls, together below it. fence: until the transaction of a predecessor is over.
    """

    transaction: float = 15.0
    flush: float = 7.0
    commit: float = 6.0
    fence: float = 30.0


LIMITS: Final = Limits()


class Transactions:
    """A producer of transactions. Once a call raised KafkaUnavailable it is over: close it, and begin anew.

    transactional_id: whoever fences last under it is the only one who can publish. compression: None, or
    `gzip`, `lz4`, `zstd`.
    """

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        *,
        compression: str | None = None,
        limits: Limits = LIMITS,
    ) -> None:
        self.cluster, self.transactional_id, self.limits = cluster, transactional_id, limits
        self._call = _Caller()
        self._began = self._ended = 0.0
        try:
            self._producer: Any = KafkaProducer(**cluster.options() | self._settings(compression))
        except KafkaError as error:
            self._call.end()
            raise cluster.unavailable(error) from error

    def _settings(self, compression: str | None) -> dict[str, Any]:
        limits = self.limits
        return {
            "transactional_id": self.transactional_id,
            "transaction_timeout_ms": int(limits.transaction * 1000),
            "delivery_timeout_ms": int(limits.flush * 1000),
            "request_timeout_ms": int(limits.flush * 1000) - 500,
            "max_block_ms": int(limits.flush * 1000),
            "retry_backoff_ms": BACKOFF,
            "linger_ms": 20,
            "batch_size": 131_072,
            "max_request_size": MAX_REQUEST,
            "compression_type": compression,
            "metrics_enabled": False,
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def fence(self) -> None:
        """End the transactions of all predecessors: from now on only this producer can publish.

        Afterwards it is settled what they have published: read the checkpoint after this, never before.
        """
        deadline = time.monotonic() + self.limits.fence
        while True:
            try:
                self._call(self.limits.fence, "init_transactions", self._producer.init_transactions)
                return
            except KafkaTimeoutError as error:
                if time.monotonic() > deadline:
                    raise KafkaUnavailable(
                        f"the transactions' coordinator does not answer: {error}"
                    ) from None
            except KafkaError as error:
                raise KafkaUnavailable(f"the producer could not begin: {_said(error)}") from error

    def publish(self, records: Iterable[Outgoing]) -> None:
        """Publish records in one transaction: all of them, in their order. Raises KafkaUnavailable.

        After that error it is unknown whether they are; the next producer learns it from the checkpoint.
        """
        self.begin(records)
        self.finish()

    def begin(self, records: Iterable[Outgoing]) -> None:
        """Begin to publish records, and go on in another thread until `finish`. Raises KafkaUnavailable."""
        self._began = time.monotonic()
        try:
            self._producer.begin_transaction()
            send = self._producer.send
            futures = [
                send(one.topic, one.value, one.key, one.headers, one.partition, one.timestamp)
                for one in records
            ]
        except KafkaError as error:
            raise KafkaUnavailable(f"a block was not published: {_said(error)}") from error
        self._call.start(lambda: self._complete(futures))

    def finish(self) -> None:
        """Wait until what was begun is published. Raises KafkaUnavailable, as `publish`."""
        try:
            self._call.wait(self.limits.flush + self.limits.commit, "flush and commit")
        except KafkaError as error:
            raise KafkaUnavailable(f"a block was not published: {_said(error)}") from error
        if self._ended - self._began > self.limits.transaction:  # frozen meanwhile: it may have been aborted
            raise KafkaUnavailable("a block took longer than a transaction may, so its commit proves nothing")

    def _complete(self, futures: Sequence[Any]) -> None:
        self._producer.flush(timeout=self.limits.flush)
        for future in futures:
            if not future.succeeded():
                raise future.exception or KafkaUnavailable("a record was not acknowledged")
        self._producer.commit_transaction()
        self._ended = time.monotonic()

    def close(self) -> None:
        """Give the producer up, at once: without a limit it would wait for what never comes."""
        with suppress(KafkaError, KafkaUnavailable):
            self._call(1.0, "close", lambda: self._producer.close(timeout=0))
        if (sender := self._producer._sender) is not None:  # close gives up before it comes to this
            sender.force_close()
        self._call.end()


class _Caller:
    """A thread that makes calls, each with a limit of time; where one hangs, it is left behind."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._hangs = False
        threading.Thread(target=self._run, name="kafka producer", daemon=True).start()

    def __call__(self, seconds: float, what: str, call: Callable[[], object]) -> None:
        self.start(call)
        self.wait(seconds, what)

    def start(self, call: Callable[[], object]) -> None:
        """Begin a call. Raises KafkaUnavailable if an earlier one did not end."""
        if self._hangs:
            raise KafkaUnavailable("nothing more is called, since an earlier call did not end")
        self._calls.put(call)

    def wait(self, seconds: float, what: str) -> None:
        """Wait for the end of the call that was begun, and raise what it raised; else KafkaUnavailable."""
        try:
            error = self._answers.get(timeout=seconds)
        except queue.Empty:
            self._hangs = True
            raise KafkaUnavailable(f"{what} did not end within {seconds:g} s") from None
        if error is not None:
            raise error

    def end(self) -> None:
        """End the thread, once it can."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            except BaseException as error:
                self._answers.put(error)
            else:
                self._answers.put(None)


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
