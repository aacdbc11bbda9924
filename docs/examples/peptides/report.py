"""Write a report: python report.py FAMILIES PEPTIDES... OUT"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from fasta import save


def lines(families: str, peptides: list[str]) -> Iterator[str]:
    """The lines of the report, in Markdown."""
    yield "| enzyme | peptides | found |\n|---|---|---|"
    for path in map(Path, peptides):
        counts = [line.split("\t")[1:] for line in path.read_text(encoding="utf-8").splitlines()]
        made, found = (sum(map(int, column)) for column in zip(*counts, strict=True))
        yield f"| {path.stem} | {made} | {found} |"
    yield "\n| family | proteins | recognised |\n|---|---|---|"
    for family, told in json.loads(Path(families).read_text(encoding="utf-8")).items():
        yield f"| {family} | {told['proteins']} | {told['recognised']} |"


def main(families: str, *paths: str) -> None:
    *peptides, out = paths
    save(out, "".join(f"{line}\n" for line in lines(families, peptides)))


if __name__ == "__main__":
    main(*sys.argv[1:])
