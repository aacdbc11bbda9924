"""
K-mer profiles: how often each word of k letters stands in a protein, and how often it would by chance.

Chance is what shuffling says: the same letters in another order, again and again. All that is kept are whole
numbers, so that sums are the same in whatever order and by how many workers they are made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import sqrt
from random import Random
from typing import Final

from docs.examples.kmers.fasta import Protein

LETTERS: Final = frozenset("ACDEFGHIKLMNPQRSTVWY")
"""The twenty amino acids; a word with any other letter (X: unknown) does not count."""
FEWEST: Final = 5
"""A word that is seen less often is no finding, however seldom it is by chance."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The words of one protein, with how often each stands in it."""

    nr: int
    name: str
    length: int
    words: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Unusual:
    """A word that is seen more often than by chance: `score` is by how many standard deviations."""

    word: str
    seen: int
    by_chance: float
    score: float


def profile(protein: Protein, k: int) -> Profile:
    """The profile of a protein."""
    return Profile(protein.nr, protein.name, len(protein.sequence), dict(words(protein.sequence, k)))


def words(sequence: str, k: int) -> Counter[str]:
    """How often each word of k letters stands in a sequence."""
    found = Counter(sequence[at : at + k] for at in range(len(sequence) - k + 1))
    return Counter({word: many for word, many in found.items() if LETTERS.issuperset(word)})


def by_chance(proteins: Iterable[Protein], k: int, shuffles: int) -> Counter[str]:
    """The words of so many shuffles of each protein, together. A sequence is shuffled in one way, always."""
    found: Counter[str] = Counter()
    for protein in proteins:
        letters, lot = list(protein.sequence), Random(protein.sequence)
        for _ in range(shuffles):
            lot.shuffle(letters)
            found.update(words("".join(letters), k))
    return found


def unusual(seen: Mapping[str, int], chance: Mapping[str, int], shuffles: int, most: int) -> list[Unusual]:
    """The words that stand out, first those that do most. A word that no shuffle made counts as made once."""
    found = []
    for word, many in seen.items():
        if many < FEWEST:
            continue
        expected = max(chance.get(word, 0), 1) / max(shuffles, 1)
        found.append(Unusual(word, many, expected, (many - expected) / sqrt(expected)))
    return sorted(found, key=lambda one: (-one.score, one.word))[:most]
