"""The example on k-mers: its parts, a run of it with workers killed in the middle, and its check."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest

from docs.examples.kmers import fasta, rows
from docs.examples.kmers.__main__ import MOST, SHIPPED
from docs.examples.kmers.check import faults
from docs.examples.kmers.fasta import BadFasta, Protein, cut, read
from docs.examples.kmers.parcel import DamagedParcel, Parcel, pack, unpack
from docs.examples.kmers.profile import Profile, by_chance, profile, unusual, words
from ledger import Ledger
from ledger.jobs import Jobs
from tests.fork_server import python

ROOT = Path(__file__).parents[2]
THREE = b">a one\nMKV\nLAA\n>b\n>c three\nmkvx*\n"


def whole(path: Path, size: int) -> list[Protein]:
    """All proteins, part by part."""
    return [protein for part in cut(path, size)[1] for protein in read(path, part)]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize(
    "text",
    [
        THREE,
        THREE.replace(b"\n", b"\r\n"),
        THREE.rstrip(),
        b"\n\n" + THREE,
        fasta.MARK + THREE,
        gzip.compress(THREE),
        gzip.compress(THREE[:20]) + gzip.compress(THREE[20:]),
    ],
    ids=["plain", "crlf", "no end of line", "empty lines", "mark", "gzip", "gzip of two"],
)
def test_a_file_is_read_by_parts_as_a_whole(tmp_path: Path, text: bytes, size: int) -> None:
    path = tmp_path / "three"
    path.write_bytes(text)
    assert whole(path, size) == [Protein(1, "a", "MKVLAA"), Protein(2, "b", ""), Protein(3, "c", "MKVX")]
    parts = cut(path, size)[1]
    assert [part.proteins for part in parts] == [min(size, 3 - at) for at in range(0, 3, size)]
    assert [part.start for part in parts[1:]] == [part.end for part in parts[:-1]], "no byte is left out"


def test_what_is_no_fasta_file_is_refused_with_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "bad"
    path.write_bytes(b"MKV\n>a\n")
    with pytest.raises(BadFasta, match="before the first line"):
        cut(path, 2)
    zipped = gzip.compress(b">a\n" + Random(1).randbytes(5000).hex().encode())
    for damaged in (zipped[:-40], zipped[:2000] + b"???" + zipped[2003:]):
        path.write_bytes(damaged)
        with pytest.raises(BadFasta, match="cut off or damaged"):
            cut(path, 2)
    path.write_bytes(b"")
    assert cut(path, 2)[1] == [], "an empty file is no error"


def test_a_file_that_changed_since_it_was_cut_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "changing"
    path.write_bytes(THREE)
    _, parts = cut(path, 1)
    path.write_bytes(THREE.replace(b"LAA", b"LAG"))
    with pytest.raises(BadFasta, match="changed since it was cut"):
        read(path, parts[0])
    assert read(path, parts[2]) == [Protein(3, "c", "MKVX")], "other parts are what they were"


def test_words_are_counted() -> None:
    assert words("MKKMKK", 2) == {"MK": 2, "KK": 2, "KM": 1}
    assert words("MKXMK", 2) == {"MK": 2}, "a word with an unknown letter does not count"
    assert words("MK", 3) == {}
    protein = Protein(1, "a", "MKVLAAGIKW")
    once, again = by_chance([protein], 1, 3), by_chance([protein], 1, 3)
    assert once == again == Counter({letter: 3 * many for letter, many in words(protein.sequence, 1).items()})
    assert by_chance([protein], 2, 50).total() == 50 * 9
    assert by_chance([protein, protein], 2, 5) == Counter(
        {word: 2 * many for word, many in by_chance([protein], 2, 5).items()}
    )


def test_what_stands_out_is_seen_more_often_than_by_chance() -> None:
    found = unusual({"AA": 9, "CC": 9, "DD": 4}, {"AA": 90, "CC": 10}, 10, 5)
    assert [(one.word, one.by_chance, one.score) for one in found] == [("CC", 1.0, 8.0), ("AA", 9.0, 0.0)]


def test_a_parcel_is_what_was_packed(tmp_path: Path) -> None:
    parcel = Parcel([Profile(1, "a", 3, {"MKV": 1})], {"MKV": 2})
    digest = pack(parcel, tmp_path)
    assert pack(parcel, tmp_path) == digest
    assert unpack(tmp_path, digest) == parcel
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes().replace(b"2", b"3"))
    with pytest.raises(DamagedParcel, match="run its batch again"):
        unpack(tmp_path, digest)


# A run


def told(dsn: str, *arguments: str) -> dict[str, Any]:
    """What a run says of itself, as JSON."""
    command = [*python(), "-m", "docs.examples.kmers", "run", "--json", *arguments]
    env = os.environ | {"LEDGER_DSN": dsn, "NO_COLOR": "1"}
    ways: dict[str, Any] = {"cwd": ROOT, "env": env, "text": True, "timeout": 600}
    done = subprocess.run(command, capture_output=True, check=False, **ways)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def seen(path: Path, word: str) -> int:
    """How often a word stands in a file, counted in another way: after each letter, is it there?"""
    sequences = ["".join(one.split("\n")[1:]) for one in path.read_text().split(">")[1:]]
    return sum(sequence.startswith(word, at) for sequence in sequences for at in range(len(sequence)))


def check_log(log: Ledger, found: dict[str, Any]) -> None:
    """Every batch came to its end once, each step of it was claimed, and the job was closed once."""
    job = Jobs(log).get(found["job"])
    assert job.status == "succeeded"
    assert [e.topic for e in log.read(f"job/{job.id}")].count("job.succeeded") == 1
    for nr in range(1, found["batches"] + 1):
        topics = Counter(event.topic for event in log.read(f"batch/{job.id}/{nr}"))
        assert topics["batch.completed"] == topics["batch.computed"] == 1
        assert topics["batch.started"] >= 2


@pytest.mark.slow  # the tutorial runs it, with one kill
def test_workers_are_killed_and_every_batch_is_written_once(
    dsn: str, log: Ledger, connect: Callable[..., psycopg.Connection[Any]]
) -> None:
    found = told(dsn, "--workers", "2", "--kill", "2", "--lease-seconds", "1", "--shuffles", "10")

    assert len(found["killed"]) == 2
    assert found["faults"] == []
    assert found["batches"] == 17
    assert found["claims"] > 2 * 17, "what was killed was claimed again"
    check_log(log, found)
    word = found["unusual"][0]
    assert word["seen"] == seen(SHIPPED, word["word"])

    # The check sees what it is there to see.
    job, total = Jobs(log).get(found["job"]), {"unusual": found["unusual"]}
    for wrong, complaint in {
        "INSERT INTO kmer_profiles SELECT * FROM kmer_profiles WHERE batch = '3'": "there are 10 profiles",
        "INSERT INTO kmer_chance SELECT * FROM kmer_chance WHERE batch = '3'": "and 2 sums",
        "DELETE FROM kmer_profiles WHERE nr = 85": "of batch 17 there are 4 profiles",
        "UPDATE kmer_profiles SET words = words || '{\"KKK\": 99}' WHERE nr = 7": "protein 7",
        "UPDATE kmer_profiles SET batch = 'x' WHERE nr = 7": "batch x, which is none of this run",
    }.items():
        connection = connect()
        connection.execute(wrong)
        assert complaint in " ".join(faults(log, connection, job, total, MOST))
        connection.rollback()
    assert list(faults(log, connect(), job, {"unusual": []}, MOST)) == [
        "the words that stand out are not those of a plain computation"
    ]


@pytest.mark.slow
def test_many_are_killed_and_every_batch_is_written_once(
    dsn: str, log: Ledger, tmp_path: Path, minutes: float
) -> None:
    lot, path = Random(7), tmp_path / "many.faa.gz"
    with gzip.open(path, "wt") as file:
        for nr in range(max(400, int(2000 * minutes))):
            sequence = "".join(lot.choices("ACDEFGHIKLMNPQRSTVWYX", k=lot.randint(0, 600)))
            print(
                f">protein-{nr}",
                *[sequence[at : at + 60] for at in range(0, len(sequence), 60)],
                sep="\n",
                file=file,
            )
    kills = max(6, int(10 * minutes))
    found = told(
        dsn, str(path), "--workers", "3", "--slots", "2", "--kill", str(kills), "--lease-seconds", "1"
    )
    assert found["faults"] == []
    assert len(found["killed"]) == kills
    check_log(log, found)


def test_tables_are_made_once(connect: Callable[..., psycopg.Connection[Any]]) -> None:
    connection = connect(autocommit=True)
    for _ in range(2):
        rows.make_tables(connection)
    assert rows.written(connection, "00000000-0000-4000-8000-000000000000") == {}
    assert profile(Protein(1, "a", "MKV"), 3) == Profile(1, "a", 3, {"MKV": 1})
