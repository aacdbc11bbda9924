"""
Hints over Kafka: a worker hears of new work from the topic of the jobs' events, instead of asking the log.

    with KafkaHints(cluster) as hints: Worker(log, "mypipeline:registry", hints=hints).run()

Each worker reads the whole topic from its end, without a consumer group: work is never distributed by
partitions, because offers would wait behind a busy worker while others idle. The claim chooses among all
workers (`consumers.jobs.claim`). A hint is only news, so records of transactions that are not committed yet
count too.
"""

from __future__ import annotations

import heapq
import json
import logging
import threading
import time
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Final, Self

from kafka import KafkaConsumer, TopicPartition

from consumers.jobs.signal import Signal
from projections.jobs.work import WorkView

from .cluster import Cluster
from .routes import Routes

HINTS: Final = frozenset(WorkView.topics) - {"job.started", "batch.started"}
"""Events after which more work may be claimable: what the view `work` reads, without claims."""
RETRY: Final = 1.0
"""Seconds between two attempts to reach Kafka."""
POLL: Final = 0.2
"""Seconds for which a read waits; the end of a worker waits so long at most."""

_log = logging.getLogger(__name__)


class KafkaHints:
    """Hints from the topic of the jobs' events. queues: only of these; by default of all.

    While Kafka cannot be reached it is `deaf`, and the worker asks as one without hints does.
    """

    def __init__(
        self, cluster: Cluster, *, prefix: str = "ledger", queues: Collection[str] | None = None
    ) -> None:
        self.cluster, self.topic = cluster, Routes(prefix).topic("jobs")
        self.queues = None if queues is None else frozenset(queues)
        self.signal, self.deaf = Signal(), True
        self._due: list[float] = []
        """When work is due, by the monotonic clock: a heap."""
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="hints", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(2 * RETRY)  # a client that hangs is left behind
        self.signal.close()

    def heard(self) -> bool:
        """Whether work may have been offered, or became due, since the last call; True while it is deaf."""
        now = time.monotonic()
        with self._lock:
            came = False
            while self._due and self._due[0] <= now:
                heapq.heappop(self._due)
                came = True
        return came or self.deaf

    def _run(self) -> None:
        last_error = ""
        while not self._stop.is_set():
            try:
                self._listen()
            except Exception as error:  # whatever it is: while it is deaf, the log is asked
                if last_error != (last_error := type(error).__name__):
                    _log.warning("no hints from %s, so the log is asked: %s", self.topic, error)
            self.deaf = True
            self._stop.wait(RETRY)

    def _listen(self) -> None:
        """Read the topic from its end until the worker ends."""
        consumer: Any = KafkaConsumer(
            **self.cluster.options()
            | {
                "enable_auto_commit": False,
                "auto_offset_reset": "latest",
                "isolation_level": "read_uncommitted",
                "fetch_max_wait_ms": int(POLL * 1000),
                "metrics_enabled": False,
            }
        )
        try:
            if self._stand_at_the_end(consumer):
                self._add(0.0)  # for what came before
                self.deaf = False
                while not self._stop.is_set():
                    for records in consumer.poll(timeout_ms=int(POLL * 1000)).values():
                        self._take(records)
        finally:
            consumer.close(timeout_ms=0)

    def _stand_at_the_end(self, consumer: Any) -> bool:
        """Miss nothing from here on; False while the relay has not made the topic."""
        places = [TopicPartition(self.topic, n) for n in consumer.partitions_for_topic(self.topic) or ()]
        if places:
            consumer.assign(places)
            consumer.seek_to_end(*places)
            for place in places:
                consumer.position(place)
        return bool(places)

    def _take(self, records: Collection[Any]) -> None:
        found = [seconds for record in records if (seconds := self._hint(record)) is not None]
        for seconds in found:
            self._add(seconds)

    def _hint(self, record: Any) -> float | None:
        """Seconds until the work of an event is due; None if it offers none to this worker."""
        headers = dict(record.headers)
        if headers.get("ce_type", b"").decode() not in HINTS:
            return None
        body = _body(record.value)
        if self.queues is not None and body.get("queue", next(iter(self.queues))) not in self.queues:
            return None
        return _delay(body, headers)

    def _add(self, seconds: float) -> None:
        with self._lock:
            heapq.heappush(self._due, time.monotonic() + seconds)
        if seconds <= 0:
            self.signal.set()


def _body(value: bytes | None) -> dict[str, Any]:
    """The body of an event; empty where the record only refers to it."""
    body = json.loads(value) if value else {}
    return body if isinstance(body, dict) else {}


def _delay(body: Mapping[str, Any], headers: Mapping[str, bytes]) -> float:
    """Seconds from an event to the time when its work is due.

    They count from the arrival here, so that the clocks of this machine and of the database may differ.
    """
    seconds = float(body.get("delay_seconds") or 0)
    if (run_at := body.get("run_at")) is not None:
        recorded_at = datetime.fromisoformat(headers["ce_time"].decode())
        seconds += (datetime.fromisoformat(run_at) - recorded_at).total_seconds()
    return max(0.0, seconds)
