"""Keep each protein once, and none that is too short: python clean.py FASTA SHORTEST OUT"""

from __future__ import annotations

import sys

from fasta import read, write


def main(source: str, shortest: str, out: str) -> None:
    by_sequence = {protein.sequence: protein for protein in reversed(read(source))}
    write(out, sorted(one for one in by_sequence.values() if len(one.sequence) >= int(shortest)))


if __name__ == "__main__":
    main(*sys.argv[1:])
