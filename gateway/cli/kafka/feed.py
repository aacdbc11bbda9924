"""`pledger views feed`: views from a relay's topics, in a database without the log."""

from __future__ import annotations

from contextlib import ExitStack
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from ..jobs.worker import stopped_by_signals
from ..session import AsJson, Session, session_of
from ..stderr import EVERY, log_to_stderr
from ..views import views_for
from .options import Kafka, Prefix

if TYPE_CHECKING:
    from consumers.kafka.feed import KafkaFeed

Names = Annotated[list[str], typer.Argument(metavar="VIEW...", help="The views, such as in_state progress.")]
Until = Annotated[
    int | None, typer.Option(metavar="POSITION", min=0, help="End once all events up to here are applied.")
]
Source = Annotated[
    str | None,
    typer.Option(
        metavar="DSN", help="The ledger of the events, for bodies that are too large for a record of Kafka."
    ),
]
Anew = Annotated[
    bool,
    typer.Option(
        "--anew",
        help="Build the views anew from the beginning of the topics; readers see the old ones meanwhile.",
    ),
]


def feed(
    context: typer.Context,
    names: Names,
    kafka: Kafka = None,
    prefix: Prefix = "ledger",
    until: Until = None,
    source: Source = None,
    anew: Anew = False,
    as_json: AsJson = False,
) -> None:
    """Keep views up to date from Kafka until Ctrl-C, in a database that has no log.

    --dsn and --schema name the place of the views: an empty ledger that `pledger init` made. The events come
    from the topics of a relay, in the order of the log, and each counts once, whatever is killed. The views
    equal those that follow the log. Import all domains (--domain) whose statuses and sets the views shall
    know, from the start.

    --anew builds them again: after a view's code has changed, after a domain has declared more statuses, for
    streams that were parked, or from the topics of another prefix. Readers see the old rows until the new
    ones contain as much; a feed of the old ones may go on until then. If it is interrupted, the same command
    goes on.

    \b
    Examples:
      pledger --dsn postgresql://reports/db init
      pledger --dsn postgresql://reports/db views feed in_state progress --kafka localhost:9092
      pledger --dsn postgresql://reports/db views feed in_state --anew

    JSON, one object at the end: views, position (of the last event), events (how many were applied).
    """
    session = session_of(context, as_json)
    views = views_for(session, names)
    import ledger
    from consumers.kafka.cluster import Cluster
    from consumers.kafka.feed import KafkaFeed

    with session.ledger() as log, ExitStack() as stack:
        whole = None if source is None else stack.enter_context(ledger.connect(source, actor="feed"))
        fed = KafkaFeed(log, views, Cluster.of(kafka), prefix, source=whole, anew=anew)
        stack.enter_context(log_to_stderr(session, "consumers", "projections.engine"))
        _run(session, fed, until)


def _run(session: Session, fed: KafkaFeed, until: int | None) -> None:
    names, told = [view.name for view in fed.views], monotonic()

    def moved(position: int) -> None:
        nonlocal told
        if monotonic() - told >= EVERY:
            told = monotonic()
            session.say(f"fed up to position {position:,}, {fed.events:,} events")

    session.say(f"feeds {', '.join(names)}; Ctrl-C ends it")
    with stopped_by_signals() as stop:
        fed.run(stop, until, moved)
    data = {"views": names, "position": fed.position, "events": fed.events}
    session.print_fields(data, data | {"views": ", ".join(names)})
