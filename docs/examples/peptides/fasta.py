"""FASTA files, read and written."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Protein(NamedTuple):
    """A protein. name: its accession. title: what it is. sequence: one letter for each amino acid."""

    name: str
    title: str
    sequence: str


def read(path: str) -> list[Protein]:
    """The proteins of a file, in its order."""
    found = []
    for record in Path(path).read_text(encoding="utf-8").split(">")[1:]:
        head, *lines = record.splitlines()
        *_, name, title = head.split("|")
        found.append(Protein(name, title.partition(" [")[0].strip(), "".join(lines).upper()))
    return found


def write(path: str, proteins: Iterable[Protein]) -> None:
    """Write proteins to a file, and make its folder."""
    save(path, "".join(f">|{name}|{title}\n{sequence}\n" for name, title, sequence in proteins))


def save(path: str, text: str) -> None:
    """Write a file, and make its folder."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text, encoding="utf-8")
