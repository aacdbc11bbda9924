"""Threads that read states of the same classes for the first time, all at once."""

from __future__ import annotations

import subprocess
import sys

ROUNDS = 100
PROGRAM = """
import sys, threading, types
from ledger.domain.state import load, load_each

SOURCE = '''
from __future__ import annotations
from dataclasses import dataclass

@dataclass(frozen=True)
class Part:
    number: int = 0
    word: str | None = None

@dataclass(frozen=True)
class Whole:
    first: Part
    others: tuple[Part, ...] = ()
    named: dict[str, Part] | None = None
'''

def read(module, gate, found):
    gate.wait()
    whole = load(module.Whole, '{"first":{"number":1},"others":[{"word":"a"}]}')
    found.append((whole.first.number, whole.others[0].word))
    found.append(load_each(module.Part, ['{"number":2}'])[0].number)

sys.setswitchinterval(1e-6)
for round in range(int(sys.argv[1])):
    module = sys.modules[f"round_{round}"] = types.ModuleType(f"round_{round}")
    exec(SOURCE, vars(module))
    gate, found = threading.Barrier(4), []
    threads = [threading.Thread(target=read, args=(module, gate, found)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, found)) == ["(1, 'a')"] * 4 + ["2"] * 4, found
"""
"""In a process of its own: where this goes wrong, the process ends by a signal."""


def test_threads_may_read_states_of_a_new_class_at_once() -> None:
    ran = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", PROGRAM, str(ROUNDS)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
