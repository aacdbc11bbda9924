"""Cleave proteins by an enzyme, and count the peptides: python cleave.py FASTA ENZYME OUT"""

from __future__ import annotations

import re
import sys
from typing import Final

from fasta import read, save

PLACES: Final = {"trypsin": r"(?<=[KR])(?!P)", "lys-c": r"(?<=K)", "glu-c": r"(?<=[DE])"}
"""Where each enzyme cleaves."""
DETECTED: Final = range(6, 41)
"""Lengths of peptides that a spectrometer finds."""


def main(source: str, enzyme: str, out: str) -> None:
    lines = []
    for protein in read(source):
        peptides = [piece for piece in re.split(PLACES[enzyme], protein.sequence) if piece]
        found = sum(len(peptide) in DETECTED for peptide in peptides)
        lines.append(f"{protein.name}\t{len(peptides)}\t{found}\n")
    save(out, "".join(lines))


if __name__ == "__main__":
    main(*sys.argv[1:])
