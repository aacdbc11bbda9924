"""Files that were imported and changed since: what grew is recorded once, what changed is refused."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from ledger import BadFile, Ledger
from ledger.exchange.csv_files import Dialect
from ledger.exchange.json_lines import JsonLines
from ledger.exchange.mapped_files import Mapped, MappedCsv
from ledger.exchange.record import Recorder
from tests.exchange.conftest import events, imported
from tests.gateway.conftest import Ended

Written = Callable[..., Path]
Pledger = Callable[..., Ended]
MAPPED = Mapped("scan", key_columns=["id"], state_column="status")


def csv(many: int, *, title: str = "id,status,note", changed: int = -1) -> str:
    rows = [f"{n % 7},s{n},{'x' if n == changed else n}" for n in range(many)]
    return "\n".join([title, *rows]) + "\n"


def reading() -> MappedCsv:
    return MappedCsv(Dialect(), MAPPED)


def notes(log: Ledger) -> list[str]:
    return [json.loads(event.data or "")["note"] for event in events(log)]


def test_only_what_grew_is_recorded(log: Ledger, written: Written) -> None:
    imported(log, written("scans.csv", csv(4500)), reading())
    path = written("scans.csv", csv(5000))
    dry = imported(log, path, reading(), dry_run=True)
    assert (dry.events, dry.recorded, dry.there, dry.streams) == (5000, 500, 4500, 0)
    done = imported(log, path, reading())
    assert (done.events, done.recorded, done.there) == (5000, 500, 4500)
    assert notes(log) == [str(n) for n in range(5000)]
    again = imported(log, path, reading())
    assert (again.recorded, again.there) == (0, 5000)
    done = imported(log, written("scans.csv", csv(7300)), reading())
    assert (done.recorded, done.there) == (2300, 5000)
    assert imported(log, written("scans.csv", csv(4700)), reading()).there == 4700, "an old copy of it"
    assert notes(log) == [str(n) for n in range(7300)]


def test_a_small_file_grows_row_by_row(
    log: Ledger, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledger.exchange.importer.PIECE", 4)
    for many in (1, 2, 3, 7, 8, 9, 13):
        imported(log, written("scans.csv", csv(many)), reading())
        assert notes(log) == [str(n) for n in range(many)]


def test_a_changed_row_is_refused_and_named(log: Ledger, written: Written) -> None:
    imported(log, written("scans.csv", csv(2500)), reading())
    for many, changed, line in ((2500, 2400, 2402), (3000, 2400, 2402), (2500, 0, 2), (900, 7, 9)):
        path = written("scans.csv", csv(many, changed=changed))
        for dry_run in (True, False):
            with pytest.raises(BadFile) as caught:
                imported(log, path, reading(), dry_run=dry_run)
            assert str(caught.value).startswith(f"scans.csv, line {line}: ")
            assert "--id-column" in str(caught.value)
            assert "--file-name" in str(caught.value)
    assert "1 row of it differs" in str(caught.value)
    assert len(events(log)) == 2500


def test_a_new_column_or_another_mapping_is_refused(log: Ledger, written: Written) -> None:
    imported(log, written("scans.csv", csv(3)), reading())
    wider = "id,status,note,who\n0,s0,0,mina\n1,s1,1,mina\n2,s2,2,theo\n"
    with pytest.raises(BadFile, match="3 rows of it differ"):
        imported(log, written("scans.csv", wider), reading())
    with pytest.raises(BadFile, match="line 2: "):
        imported(log, written("scans.csv", csv(3)), MappedCsv(Dialect(), Mapped("box", key_columns=["note"])))
    assert len(events(log)) == 3


def test_how_a_file_is_written_does_not_matter(log: Ledger, written: Written) -> None:
    imported(log, written("scans.csv", csv(1200)), reading())
    reordered = "note;status;id\n" + "".join(f"{n};s{n};{n % 7}\n" for n in range(1500))
    done = imported(log, written("scans.csv.gz", gzip.compress(reordered.encode())), reading())
    assert (done.recorded, done.there) == (300, 1200)


def test_the_same_file_under_another_name_is_recorded_once(log: Ledger, written: Written) -> None:
    imported(log, written("a.csv", csv(1200)), reading())
    assert imported(log, written("b.csv", csv(1200)), reading()).recorded == 0
    assert imported(log, written("c.csv", csv(1500)), reading()).recorded == 300, (
        "its first thousand is proof"
    )
    assert notes(log) == [str(n) for n in range(1500)]


def test_a_few_equal_rows_under_another_name_are_no_proof(log: Ledger, written: Written) -> None:
    imported(log, written("monday.csv", csv(3)), reading())
    tuesday = written("tuesday.csv", csv(5))
    with pytest.raises(BadFile, match=r"tuesday.csv, line 5: .* 'monday.csv', all 3 rows of it.*--file-name"):
        imported(log, tuesday, reading())
    assert imported(log, tuesday, reading(), name="monday.csv").recorded == 2
    assert imported(log, tuesday, reading(), name="tuesday").recorded == 5
    assert imported(log, written("wednesday.csv", csv(4, changed=0)), reading()).recorded == 4


def test_what_came_by_stdin_has_no_name(
    pledger: Pledger, log: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ("import", "-", "--format", "csv", "--category", "scan", "--key-column", "id")
    for text, says in (
        (csv(2), "2 events recorded"),
        (csv(2), "0 events recorded, 0 new streams; 2 were recorded already"),
        (csv(2, changed=0), "2 events recorded"),
        (csv(3), "line 4: the rows before are recorded from stdin, all 2 rows"),
    ):
        monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(text.encode())))
        assert says in pledger(*given).err
    assert len(events(log)) == 4


def test_another_file_of_the_same_name_needs_a_name(log: Ledger, written: Written) -> None:
    imported(log, written("scans.csv", csv(3)), reading())
    other = written("scans.csv", csv(4, changed=0))
    with pytest.raises(BadFile, match="--file-name"):
        imported(log, other, reading())
    assert imported(log, other, reading(), name="tuesday/scans.csv").recorded == 4
    assert imported(log, other, reading(), name="tuesday/scans.csv").there == 4


def test_lines_without_versions_grow_too(log: Ledger, written: Written) -> None:
    def lines(many: int, first: str = "0") -> str:
        names = [first, *map(str, range(1, many))]
        return "".join(f'{{"stream": "a/1", "topic": "a.b", "data": {{"n": {n}}}}}\n' for n in names)

    imported(log, written("a.jsonl", lines(1300)), JsonLines())
    done = imported(log, written("a.jsonl", lines(1500)), JsonLines())
    assert (done.recorded, done.there) == (200, 1300)
    with pytest.raises(BadFile, match="line 1: "):
        imported(log, written("a.jsonl", lines(1500, "-1")), JsonLines())
    assert len(events(log)) == 1500


def test_an_export_that_grew_brings_what_is_new(log: Ledger, written: Written) -> None:
    def lines(many: int) -> str:
        parts = {"stream": "a/1", "topic": "a.b", "data": {}}
        return "".join(json.dumps({**parts, "version": n + 1}) + "\n" for n in range(many))

    imported(log, written("a.jsonl", lines(700)), JsonLines())
    done = imported(log, written("b.jsonl", lines(1500)), JsonLines())
    assert (done.recorded, done.there) == (800, 700)


BY_ID = Mapped("scan", key_columns=["id"], state_column="status", id_columns=["note"])


def test_an_import_that_comes_between_is_seen(
    log: Ledger, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second import of the file as it was before, begun and ended after this one has looked."""
    shorter, longer = written("old.csv", csv(450)), written("scans.csv", csv(500))
    real, others = Recorder.piece, [shorter]

    def late(self: Recorder, *arguments: Any) -> Any:
        if others:
            imported(log, others.pop(), reading(), name="scans.csv")
        return real(self, *arguments)

    monkeypatch.setattr(Recorder, "piece", late)
    done = imported(log, longer, reading())
    assert (done.recorded, done.there) == (50, 450)
    assert notes(log) == [str(n) for n in range(500)]


def test_a_row_with_an_id_is_recorded_once(log: Ledger, written: Written) -> None:
    by_id = MappedCsv(Dialect(), BY_ID)
    done = imported(log, written("scans.csv", csv(1200)), by_id)
    assert (done.recorded, done.streams) == (1200, 7)
    shuffled = csv(1300).splitlines(keepends=True)
    path = written("other.csv", "".join([shuffled[0], *reversed(shuffled[1:])]))
    dry = imported(log, path, by_id, dry_run=True)
    done = imported(log, path, by_id)
    assert (
        (dry.recorded, dry.there, dry.streams) == (done.recorded, done.there, done.streams) == (100, 1200, 0)
    )
    assert sorted(map(int, notes(log))) == list(range(1300))
    head = log.head("scan/3")
    assert head is not None
    assert head.status == "s1200"


@pytest.mark.slow
def test_two_imports_at_once_record_each_row_once(log: Ledger, written: Written) -> None:
    path = written("scans.csv", csv(3000))
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda _: imported(log, path, MappedCsv(Dialect(), BY_ID)), range(2)))
    assert [one.events for one in done] == [3000, 3000]
    assert sum(one.recorded for one in done) == len(events(log)) == 3000
    assert sum(one.streams for one in done) == 7


def test_an_id_with_other_content_is_refused(log: Ledger, written: Written) -> None:
    by_id = MappedCsv(Dialect(), BY_ID)
    imported(log, written("scans.csv", "id,status,note\n1,new,a\n2,new,b\n"), by_id)
    for row in ("2,done,b", "3,new,b"):
        for dry_run in (True, False):
            with pytest.raises(
                BadFile, match=r"line 3: the row with the id 'b' is recorded .* other content"
            ):
                imported(
                    log, written("scans.csv", f"id,status,note\n1,new,a\n{row}\n"), by_id, dry_run=dry_run
                )
    twice = written("twice.csv", "id,status,note\n1,new,c\n1,old,c\n")
    with pytest.raises(BadFile, match="line 3: the row with the id 'c'"):
        imported(log, twice, by_id, dry_run=True)
    with pytest.raises(BadFile, match="line 3: the row with the id 'c'"):
        imported(log, twice, by_id)
    same = imported(log, written("same.csv", "id,status,note\n1,new,d\n1,new,d\n"), by_id)
    assert (same.recorded, same.there) == (1, 1)
    with pytest.raises(BadFile, match="line 2: a column of the id is empty"):
        imported(log, written("empty.csv", "id,status,note\n1,new,\n"), by_id)


def test_the_command_offers_it(pledger: Pledger, written: Written, log: Ledger) -> None:
    given = ("--category", "scan", "--key-column", "id", "--state-column", "status")
    assert pledger("import", str(written("scans.csv", csv(450))), *given).code == 0
    told = pledger("import", str(written("scans.csv", csv(500))), *given, "--json").objects[0]
    assert (told["recorded"], told["there"]) == (50, 450)
    changed = str(written("scans.csv", csv(500, changed=2)))
    assert "--id-column" in pledger("import", changed, *given).err
    named = pledger("import", changed, *given, "--file-name", "another", "--json").objects[0]
    assert (named["recorded"], named["there"]) == (500, 0)
    rows = pledger("import", changed, *given, "--id-column", "note", "--json").objects[0]
    assert rows["recorded"] == 500
    assert "--id-column needs" in pledger("import", changed, "--id-column", "note").err


def test_a_dry_run_counts_what_the_run_does(
    log: Ledger, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledger.exchange.importer.PIECE", 3)
    path = written("scans.csv", csv(20))
    dry = imported(log, path, reading(), dry_run=True)
    done = imported(log, path, reading())
    assert (
        (dry.events, dry.recorded, dry.streams) == (done.events, done.recorded, done.streams) == (20, 20, 7)
    )
