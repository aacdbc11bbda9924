"""Tell the family of proteins by what was measured of them: python classify.py FEATURES FAMILIES OUT

Each protein gets the family whose mean is the nearest, where the protein itself is left out of the means.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from math import dist
from pathlib import Path
from statistics import fmean

from fasta import save

Measured = tuple[float, ...]


def rows(path: str) -> list[list[str]]:
    """The cells of a file of tab-separated values."""
    return [line.split("\t") for line in Path(path).read_text(encoding="utf-8").splitlines()]


def nearest(measures: Measured, families: dict[str, dict[str, Measured]], name: str) -> str:
    """The family with the nearest mean, without the protein of this name."""
    means = {}
    for family, members in families.items():
        if others := [values for other, values in members.items() if other != name]:
            means[family] = tuple(map(fmean, zip(*others, strict=True)))
    return min(means, key=lambda family: (dist(measures, means[family]), family))


def main(features: str, declared: str, out: str) -> None:
    starts = {row[0]: row[1] for row in rows(declared)}
    families: dict[str, dict[str, Measured]] = defaultdict(dict)
    for name, title, _, *measures in rows(features):
        family = next((family for start, family in starts.items() if title.startswith(start)), None)
        if family is not None:
            families[family][name] = tuple(map(float, measures))
    told = {
        family: {
            "proteins": len(members),
            "recognised": sum(nearest(values, families, name) == family for name, values in members.items()),
        }
        for family, members in sorted(families.items())
    }
    save(out, json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
