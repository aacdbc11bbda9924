"""Peptides that enzymes cleave from a protein, and their masses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PROTEINS: Final = Path(__file__).parents[1] / "kmers" / "chloroplast.faa"
"""Proteins of a chloroplast, from a public database."""

ENZYMES: Final = {
    1: ("trypsin", re.compile(r"(?<=[KR])(?!P)")),
    2: ("Lys-C", re.compile(r"(?<=K)")),
    3: ("Glu-C", re.compile(r"(?<=[DE])")),
}
"""Enzymes by id: the name, and the places where it cleaves."""

_WATER, _PROTON = 18.010565, 1.007276
_MASSES: Final = {
    "G": 57.021464, "A": 71.037114, "S": 87.032028, "P": 97.052764, "V": 99.068414, "T": 101.047679,
    "C": 103.009185, "L": 113.084064, "I": 113.084064, "N": 114.042927, "D": 115.026943, "Q": 128.058578,
    "K": 128.094963, "E": 129.042593, "M": 131.040485, "H": 137.058912, "F": 147.068414, "R": 156.101111,
    "Y": 163.063329, "W": 186.079313,
}  # fmt: skip


def proteins(path: Path = PROTEINS) -> Iterator[tuple[str, str]]:
    """Name and sequence of each protein of a FASTA file."""
    for record in path.read_text(encoding="utf-8").split(">")[1:]:
        head, *lines = record.splitlines()
        yield head.split("|")[3], "".join(lines)


def cleave(sequence: str, enzyme: int) -> list[str]:
    """The peptides into which an enzyme cleaves a protein."""
    return [peptide for peptide in ENZYMES[enzyme][1].split(sequence) if peptide]


def weigh(peptide: str) -> float:
    """The mass of a peptide with one charge, in daltons. Raises KeyError for an unknown amino acid."""
    return sum(_MASSES[letter] for letter in peptide) + _WATER + _PROTON
