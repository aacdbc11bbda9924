"""Large files: memory does not grow with them, and a real log comes out equal."""

from __future__ import annotations

import json
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import pytest

from ledger import Ledger
from ledger.exchange import Source, Xes
from ledger.exchange.importer import _pieces
from ledger.exchange.json_lines import JsonLines
from ledger.exchange.source import Format
from tests.exchange.conftest import exported, imported
from tests.exchange.xes_files import content

BPIC = os.environ.get("LEDGER_TEST_BPIC", "")


def xes(traces: int) -> Iterator[str]:
    yield "<log>"
    for trace in range(traces):
        yield f'<trace><string key="concept:name" value="{trace}"/>'
        yield '<event><string key="concept:name" value="new"/><int key="n" value="1"/></event>' * 20
        yield "</trace>"
    yield "</log>"


def lines(traces: int) -> Iterator[str]:
    for line in range(traces * 20):
        yield json.dumps({"stream": f"a/{line}", "topic": "a.b", "data": {"text": "x" * 100}}) + "\n"


def peak_of(path: Path, format: Format) -> int:
    """Bytes that reading the file in pieces takes at most."""
    tracemalloc.start()
    with Source.of(path) as source:
        assert sum(map(len, _pieces(format.arrivals(source)))) > 1000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


@pytest.mark.parametrize("kind", ["xes", "jsonl"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, kind: str) -> None:
    peaks = []
    for traces in (110, 440):
        path = tmp_path / f"{traces}.{kind}"
        path.write_text("".join(xes(traces) if kind == "xes" else lines(traces)))
        peaks.append(peak_of(path, Xes("a", "a") if kind == "xes" else JsonLines()))
    assert peaks[1] < peaks[0] * 1.3, "four times the file"


@pytest.mark.skipif(
    not BPIC, reason="LEDGER_TEST_BPIC names no file: the log of the BPI Challenge 2013, incidents"
)
def test_a_real_log_comes_out_equal(log: Ledger, tmp_path: Path) -> None:
    path, began = Path(BPIC), perf_counter()
    done = imported(log, path, Xes("incident", "volvo"))
    rate = done.events / (perf_counter() - began)
    assert (done.recorded, done.streams) == (65_533 + 7_554 + 2, 7_555)
    assert rate > 1000, "events a second"
    assert imported(log, path, Xes("incident", "volvo")).there == done.events
    out = exported(log, tmp_path / "out.xes.gz", "xes", prefix="incident/")
    assert content(out) == content(path)
