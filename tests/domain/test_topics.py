"""Each topic stands in ledger/topics.txt, where `grep` finds it, and none ever goes."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.domain.topics import in_file, lost
from tests.house.rules import ROOT

TOPICS = "import json; from tests.domain.topics import in_code; print(json.dumps(in_code()))"


def test_the_file_and_the_code_have_the_same_topics() -> None:
    """Read in a process of its own: tests that ran before in this one may have made machines with topics."""
    command = [sys.executable, "-c", TOPICS]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    code = {topic: (schema, domain) for topic, (schema, domain) in json.loads(done.stdout).items()}
    file = in_file()
    assert lost(file, code) == [], "topics are permanent: rename a topic with `was=`, raise a schema only"
    assert code == file, "a topic is new: `python -m tests.domain.topics` writes it into ledger/topics.txt"


def test_a_topic_that_goes_or_falls_back_is_noticed() -> None:
    before = {"a.done": (2, "a"), "b.done": (1, "b"), "c.done": (1, "c")}
    assert lost(before, {"a.done": (1, "a"), "c.done": (2, "other")}) == ["a.done", "b.done"]
    assert lost(before, {**before, "d.done": (1, "d")}) == []
