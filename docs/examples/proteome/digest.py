"""
Cleave the first proteins of a chloroplast by three enzymes, and weigh the peptides.

    python docs/examples/proteome/digest.py --proteome spinach --proteins 4

A second run does only the remaining work. `pledger proteome report spinach` shows the result.
"""

from __future__ import annotations

import argparse
from itertools import islice

from cleavage import ENZYMES, cleave, proteins, weigh
from proteome import PROTEOME, PROTEOMES, ProteomeDigestId

from consumers.pipelines import readiness
from ledger.pipelines import flow_stage, milestone
from projections.pipelines import markdown, summary

DETECTED = range(600, 4000)
"""Masses that the spectrometer can find, in daltons."""


def digest(ident: ProteomeDigestId, sequence: str) -> int:
    """Cleave a protein and weigh its peptides; returns how many can be found, 0 if this was done before."""
    with flow_stage(PROTEOMES, ident) as entry:
        if entry.skipped:
            return 0
        peptides = cleaved(ident=ident, sequence=sequence) or cleave(sequence, ident.digest_id)
        return weighed(ident=ident, peptides=peptides) or 0


@milestone(PROTEOMES, "cleaved")
def cleaved(*, ident: ProteomeDigestId, sequence: str) -> list[str]:
    return cleave(sequence, ident.digest_id)


@milestone(PROTEOMES, "weighed")
def weighed(*, ident: ProteomeDigestId, peptides: list[str]) -> int:
    return sum(int(weigh(peptide)) in DETECTED for peptide in peptides)


def main() -> None:
    options = argparse.ArgumentParser(description="Cleave proteins, and weigh the peptides.")
    options.add_argument("--proteome", default="chloroplast")
    options.add_argument("--proteins", type=int, default=4)
    given = options.parse_args()
    with PROTEOMES.open_project(given.proteome) as project:
        project.plan(digests_per_protein=len(ENZYMES))
    for number, (name, sequence) in enumerate(islice(proteins(), given.proteins), 1):
        for enzyme, (enzyme_name, _) in ENZYMES.items():
            found = digest(ProteomeDigestId(given.proteome, number, enzyme), sequence)
            if found:
                print(f"{name} by {enzyme_name}: {found} peptides can be found")
    readiness(PROTEOMES.ledger, PROTEOME).catch_up()
    for info in PROTEOMES.ledger.streams("proteome.protein.ready/"):
        print(f"{info.stream}: all its digests are weighed")
    print(markdown(summary(PROTEOME, PROTEOMES.peek_project(given.proteome))), end="")
    PROTEOMES.ledger.close()


if __name__ == "__main__":
    main()
