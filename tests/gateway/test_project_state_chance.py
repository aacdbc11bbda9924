"""Words at random for the commands of the pipelines: never a defect, never more than one sentence."""

from __future__ import annotations

import random
from collections.abc import Callable

from gateway.cli.errors import Code
from ledger import Ledger
from ledger.pipelines import Pipeline
from tests.gateway.conftest import Ended
from tests.gateway.projects import fill, pipelines

RUNS = 30
PROJECTS = ("brain_7", "BRAIN-7", "other", "", "é\x1b[31m\n", "\udcff", "a/b%c", "x" * 3000, "-p")
NUMBERS = (
    "0",
    "1",
    "2",
    "3",
    "9",
    "-1",
    "",
    "1-3",
    "2,1",
    "1-",
    "²",
    "1e3",
    str(2**63 - 1),
    str(2**64),
    "9" * 5000,
)
WORDS = ("yes", "no", "1", "", "maybe", "running", "failed", "pending", "deleted", "\udcff", "true ")


def spoken(chance: random.Random, pipeline: Pipeline) -> list[str]:
    """A command with arguments and options that may or may not fit."""
    command = chance.choice(("show", "reset", "mark", "plan", "report"))
    words = [pipeline.name, command, chance.choice(PROJECTS)]
    if command == "mark":
        level = chance.choice(pipeline.below)
        fields = (
            "completed",
            "failed",
            "running",
            "pending",
            "nothing",
            *(flag.name for flag in level.flags),
        )
        words += [chance.choice((level.name, level.name, "mosaic")), chance.choice(fields)]
        words += chance.sample(WORDS, chance.choice((0, 0, 1)))
    options = [
        f"--{name}" for name in (*pipeline.names, *(total.replace("_", "-") for total in pipeline.totals))
    ]
    for option in chance.sample([*options, "--timeout", "--reason"], chance.randrange(4)):
        words += [option, chance.choice(NUMBERS)]
    return words + chance.sample(("--all", "--dry-run", "--yes", "--markdown", "--json"), chance.randrange(3))


@pipelines
def test_no_words_are_a_defect(pledger: Callable[..., Ended], log: Ledger, pipeline: Pipeline) -> None:
    fill(log, pipeline)
    seed = random.randrange(10**9)
    chance = random.Random(seed)
    codes = set()
    for _ in range(RUNS):
        words = spoken(chance, pipeline)
        ended = pledger(*words)
        codes.add(ended.code)
        assert ended.code in (Code.FINE, Code.MISUSE, Code.NOT_FOUND), (seed, words, ended.err)
        if ended.code:
            assert (ended.out, ended.err.count("\n")) == ("", 1), (seed, words)
        assert "\x1b" not in ended.out + ended.err, (seed, words)
    assert Code.MISUSE in codes, seed
