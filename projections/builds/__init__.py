"""
The state of builds: a local copy in LMDB with reads of microseconds, and views in PostgreSQL.

    with BuildCopy(log, root / ".pledger/builds", "proteome") as copy:
        copy.catch_up()
        copy.generation("out/counts.tsv")

The copy needs the extra `builds`.

    copy.py         the copy of one project: reading, caches, following the log
    feeder.py       reads the log, and writes entries and position in one transaction
    fold.py         what each fact changes in the entries
    reading.py      a snapshot of the copy
    caches.py       hashes of files, fingerprints of code: in no log
    keys.py         how entries are named
    environment.py  LMDB: one environment per folder and process, growth, damage, forks
    places.py       where a copy lies
    check.py        compares a copy with the log, for `pledger verify`
    stages.py, runs.py  the views `build_stages` and `build_runs`, whose rows are states
"""

from typing import TYPE_CHECKING

from ledger.lazy import lazily

if TYPE_CHECKING:
    from .caches import FileHash, Fingerprint
    from .check import CopyCheck
    from .copy import BuildCopy
    from .reading import Generation, Snapshot
else:
    __getattr__ = lazily(
        __name__,
        {
            "caches": "FileHash Fingerprint",
            "check": "CopyCheck",
            "copy": "BuildCopy",
            "reading": "Generation Snapshot",
        },
    )

__all__ = ["BuildCopy", "CopyCheck", "FileHash", "Fingerprint", "Generation", "Snapshot"]
