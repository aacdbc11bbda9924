"""A consumer in a process of its own, that can be killed: python -m tests.kafka.consuming SETTINGS"""

from __future__ import annotations

import json
import signal
import sys
import threading
from typing import Any

from consumers.kafka import Consumer
from consumers.kafka.cluster import Cluster

from .oracle import writer


def main() -> None:
    settings: dict[str, Any] = json.loads(sys.argv[1])
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    handler = writer(settings["topic"], settings["group"])
    client = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 500}
    options = {"batch": 50, "concurrency": settings.get("concurrency", 1), "client": client,
               "instance": settings.get("instance"), "idle": settings.get("idle", 300.0)}  # fmt: skip
    Consumer(Cluster(settings["bootstrap"]), handler, settings["dsn"], **options).run(stop)


if __name__ == "__main__":
    main()
