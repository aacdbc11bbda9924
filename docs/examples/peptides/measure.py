"""Measure proteins: python measure.py FASTA OUT

A line each: name, title, length, hydrophobicity (Kyte and Doolittle), charge and aromatic share.
"""

from __future__ import annotations

import sys
from typing import Final

from fasta import Protein, read, save

HYDROPHOBICITY: Final = dict(
    zip(
        "ARNDCQEGHILKMFPSTWYV",
        (1.8, -4.5, -3.5, -3.5, 2.5, -3.5, -3.5, -0.4, -3.2, 4.5, 3.8, -3.9, 1.9, 2.8, -1.6, -0.8, -0.7, -0.9,
         -1.3, 4.2),
        strict=True,
    )
)  # fmt: skip


def measured(protein: Protein) -> tuple[float, float, float]:
    """Each of the three measures per amino acid."""
    letters = protein.sequence
    count = letters.count
    total = sum(HYDROPHOBICITY.get(letter, 0) for letter in letters)
    charge = count("K") + count("R") - count("D") - count("E")
    return total / len(letters), charge / len(letters), sum(map(count, "FWY")) / len(letters)


def main(source: str, out: str) -> None:
    lines = (
        "\t".join([one.name, one.title, str(len(one.sequence)), *(f"{value:.4f}" for value in measured(one))])
        for one in read(source)
    )
    save(out, "".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main(*sys.argv[1:])
