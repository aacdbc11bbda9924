"""
The operations: cut a file in parts, profile a part, write the result, sum up.

    kmers.cut      the coordinator: one pass over the file, then a batch for each part
    kmers.profile  first step of a batch: compute, and pack the result
    kmers.write    second step: write the rows, and end the batch in the same transaction
    kmers.sum      another job: which words are most unusual in all proteins

All that a batch needs is in its payload, fixed when the file was cut (spec S1-44). Workers run these with
`pledger worker run --operations docs.examples.kmers.operations:registry`.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Final

import psycopg
from pydantic import Field

from consumers.jobs import Emit, OperationContext, OperationResult, Payload, Registry
from docs.examples.kmers import fasta, rows
from docs.examples.kmers.parcel import Parcel, pack, unpack
from docs.examples.kmers.profile import by_chance, profile, unusual

COMPUTE: Final = "kmers"
WRITE: Final = "kmers.write"
"""The queues of the two steps."""

registry = Registry()


class File(Payload):
    """A file to be cut. k: letters of a word; out: a folder that all workers see."""

    path: str
    out: str
    k: int = Field(default=3, ge=1, le=6)
    shuffles: int = Field(default=20, ge=0)
    per_batch: int = Field(default=20, ge=1)


class Part(Payload):
    """A part of a file: bytes start to end, and their digest; digest_of_file: of the whole, as it was cut."""

    path: str
    out: str
    k: int
    shuffles: int
    digest_of_file: str
    first: int
    proteins: int
    start: int
    end: int
    digest: str


class Found(Payload):
    """The result of a batch's first step: a parcel in the folder `out`."""

    out: str
    parcel: str
    proteins: int


class Sum(Payload):
    """A run to sum up: the job that cut its file."""

    run: str
    shuffles: int
    most: int = Field(default=10, ge=1)


@registry.operation("kmers.cut", File)
def cut(session: OperationContext, payload: File, *, emit: Emit) -> OperationResult:
    """Cut a file in parts, one batch each."""
    digest, parts = fasta.cut(Path(payload.path), payload.per_batch)
    proteins = sum(part.proteins for part in parts)
    emit("file.cut", fields={"digest": digest, "proteins": proteins, "batches": len(parts)})
    with psycopg.connect(session.ledger.address.conninfo, autocommit=True) as connection:
        rows.make_tables(connection)
    same = {
        "path": payload.path, "out": payload.out, "k": payload.k, "shuffles": payload.shuffles,
        "digest_of_file": digest,
    }  # fmt: skip
    batches = [(COMPUTE, {"operation": "kmers.profile", "payload": same | asdict(part)}) for part in parts]
    result = {"digest": digest, "proteins": proteins, "batches": len(parts)}
    return OperationResult(result, deferred=True, publish_operations=batches)


@registry.operation("kmers.profile", Part)
def compute(session: OperationContext, payload: Part, *, emit: Emit) -> OperationResult:
    """Profile the proteins of a part."""
    emit("part.begun", fields={"first": payload.first, "pid": os.getpid()})
    part = fasta.Part(payload.first, payload.proteins, payload.start, payload.end, payload.digest)
    proteins = fasta.read(Path(payload.path), part)
    found = [profile(protein, payload.k) for protein in proteins]
    chance = by_chance(proteins, payload.k, payload.shuffles)
    parcel = pack(Parcel(found, chance), Path(payload.out))
    then = {"out": payload.out, "parcel": parcel, "proteins": len(found)}
    message = {"operation": "kmers.write", "payload": then}
    return OperationResult({"parcel": parcel}, publish_operations=[(WRITE, message)])


@registry.operation("kmers.write", Found)
def write(session: OperationContext, payload: Found, *, emit: Emit) -> None:
    """Write the result: the rows and the end of the batch are stored together, or neither is."""
    assert session.batch is not None
    parcel = unpack(Path(payload.out), payload.parcel)
    with session.transaction() as writing:
        rows.write(writing.connection, session.job_id, session.batch, parcel)
        writing.result["proteins"] = payload.proteins


@registry.operation("kmers.sum", Sum)
def total(session: OperationContext, payload: Sum, *, emit: Emit) -> OperationResult:
    """The most unusual words of all proteins."""
    with psycopg.connect(session.ledger.address.conninfo) as connection:
        seen, chance = rows.totals(connection, payload.run)
    found = unusual(seen, chance, payload.shuffles, payload.most)
    return OperationResult({"words": seen.total(), "unusual": [asdict(one) for one in found]})
