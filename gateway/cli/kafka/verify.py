"""`pledger relay verify`: the proof that topics equal the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import Code
from ..jobs.worker import stopped_by_signals
from ..output import Column, flush, json_line, plain, titled
from ..session import AsJson, Session, session_of
from .options import Kafka, Prefix

if TYPE_CHECKING:
    from consumers.kafka.relay_verify import Proof, Verified

Into = Annotated[
    str | None,
    typer.Option(
        "--repair-into",
        metavar="NAME",
        help="If there is a difference: publish the log anew under this prefix, which must be new.",
    ),
]


def verify(
    context: typer.Context,
    kafka: Kafka = None,
    prefix: Prefix = "ledger",
    repair_into: Into = None,
    as_json: AsJson = False,
) -> None:
    """Prove that a relay's topics equal the ledger.

    Names the first difference otherwise. Compares each record with its event: key, body and headers, the
    order, the number, and the chain of each partition. The relay may go on meanwhile; what it has not
    published yet is no difference. Prints the number of records and a SHA-256 of each partition.

    A topic cannot be changed. What differs is repaired by publishing the log anew, under another prefix, for
    consumers to move to.

    \b
    Examples:
      pledger relay verify
      pledger relay verify --repair-into ledger2

    Exits 1 if there is a difference. JSON, one object: position, records, partitions (topic, partition,
    records, last, digest), difference (null; or topic, partition, offset, position, what), repaired_into.
    """
    session = session_of(context, as_json)
    from consumers.kafka.cluster import Cluster
    from consumers.kafka.relay_verify import verify as compare

    cluster = Cluster.of(kafka)
    with session.ledger() as log:
        found = compare(log, cluster, prefix, seen=lambda at: session.say(f"compared up to position {at:,}"))
        repaired = None
        if found.difference is not None and repair_into is not None:
            from consumers.kafka.relay.relay import Relay

            with stopped_by_signals() as stop:
                Relay(log, cluster, prefix=repair_into).run(stop, until=log.bound())
            repaired = None if compare(log, cluster, repair_into).difference else repair_into
    _report(session, found, repaired)
    if found.difference is not None:
        flush()
        raise typer.Exit(Code.REFUSED)


def _report(session: Session, found: Verified, repaired: str | None) -> None:
    if session.json:
        told: dict[str, Any] = {"position": found.position, "records": found.records}
        told |= {"partitions": plain(found.proofs), "difference": plain(found.difference)}
        json_line(told | {"repaired_into": repaired})
        return
    numbers = titled("partition", "records", "last", number=True)
    session.print_rows(found.proofs, [Column("topic", keep=True), *numbers, Column("sha-256")], _row)
    if (one := found.difference) is None:
        session.say(f"{found.records:,} records equal the ledger, up to position {found.position:,}")
        return
    place = f"{one.topic}, partition {one.partition}" + (
        "" if one.offset is None else f", offset {one.offset}"
    )
    session.say(f"the first difference is in {place}: {one.what}")
    if repaired is not None:
        session.say(f"the log is published anew under the prefix {repaired}, and equals the ledger")


def _row(proof: Proof) -> list[Any]:
    return [proof.topic, proof.partition, proof.records, proof.last, proof.digest]
