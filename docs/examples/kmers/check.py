"""
The check at the end: many workers, some of which were killed, have written what one plain loop computes.

It checks that every batch ended exactly once in the log, and that every protein is in the tables once, with
its words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from typing import Any

from docs.examples.kmers import rows
from docs.examples.kmers.fasta import Protein, opened, parsed
from docs.examples.kmers.profile import Profile, by_chance, profile, unusual
from ledger import Ledger, Recorded
from ledger.jobs import Job, OpenBatch
from ledger.jobs.batch import BatchCompleted


def faults(
    log: Ledger, connection: rows.Connection, job: Job, total: Mapping[str, Any], most: int
) -> Iterator[str]:
    """All faults, one sentence each. total: the result of the job that sums up."""
    yield from batch_faults(log, connection, job)
    path, k, shuffles = (job.payload[name] for name in ("path", "k", "shuffles"))
    assert isinstance(k, int)
    assert isinstance(shuffles, int)
    with opened(Path(str(path))) as file:
        proteins = list(parsed(file.read()))
    yield from row_faults(proteins, connection, job.id, k)
    seen: Counter[str] = Counter()
    for protein in proteins:
        seen.update(profile(protein, k).words)
    expected = unusual(seen, by_chance(proteins, k, shuffles), shuffles, most)
    if [asdict(one) for one in expected] != [dict(one) for one in total["unusual"]]:
        yield "the words that stand out are not those of a plain computation"


def batch_faults(log: Ledger, connection: rows.Connection, job: Job) -> Iterator[str]:
    """Faults in the log, and in the rows of each batch."""
    written = rows.written(connection, job.id)
    for nr, history in histories(log, job).items():
        ends = [event.event for event in history if isinstance(event.event, BatchCompleted)]
        if len(ends) != 1:
            yield f"batch {nr} was completed {len(ends)} times"
            continue
        found, wanted = written.pop(nr, (0, 0)), (ends[0].result["proteins"], 1)
        if found != wanted:
            yield f"of batch {nr} there are {found[0]} profiles and {found[1]} sums, not {wanted[0]} and 1"
    for nr in written:
        yield f"there are rows of batch {nr}, which does not belong to this run"


def row_faults(proteins: list[Protein], connection: rows.Connection, run: str, k: int) -> Iterator[str]:
    """Faults in the profiles, one by one."""
    wanted = (profile(protein, k) for protein in proteins)
    for plain, found in zip_longest(wanted, rows.profiles(connection, run)):
        if plain is None or found is None or not same(plain, found):
            at = plain or found
            assert at is not None
            yield f"protein {at.nr}, {at.name}, is not in the table exactly once with its words"
            return


def same(one: Profile, other: Profile) -> bool:
    """Whether two profiles are equal."""
    return (one.nr, one.name, one.length, dict(one.words)) == (
        other.nr, other.name, other.length, dict(other.words),
    )  # fmt: skip


def histories(log: Ledger, job: Job) -> dict[str, list[Recorded]]:
    """The events of each batch of a job's present round, by its number."""
    numbers = [OpenBatch.number(job.rounds, nr) for nr in range(1, job.batches + 1)]
    return {nr: log.read(OpenBatch.name_of(job.id, nr)) for nr in numbers}
