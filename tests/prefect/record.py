"""`python -m tests.prefect.record [VERSION …]`: write what Prefect's own server answers to `expected/`."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.prefect import servers
from tests.prefect.clients import VERSIONS
from tests.prefect.playing import Stage
from tests.prefect.scenarios import SCENARIOS

EXPECTED = Path(__file__).with_name("expected")


def expected(version: str, letter: str) -> Any:
    """What Prefect's own server of the newest version answered after a scenario."""
    return json.loads((EXPECTED / f"{version}.json").read_text())[letter]


def record(version: str, letters: list[str]) -> list[str]:
    """Play scenarios on Prefect's own server and keep what it shows then: the letters of what failed."""
    failed: list[str] = []
    EXPECTED.mkdir(exist_ok=True)
    place = EXPECTED / f"{version}.json"
    known = json.loads(place.read_text()) if place.exists() else {}
    chosen = [one for one in SCENARIOS if not letters or one.letter in letters]
    with tempfile.TemporaryDirectory() as folder, servers.postgres_for_prefect() as postgres:
        with (
            servers.database(postgres) as dsn,
            servers.own(VERSIONS[0], dsn, Path(folder, "server")) as server,
        ):
            stage = Stage(version, server.url, Path(folder), settling=True)
            for letter, played in stage.begin(chosen).items():
                if played().ended.code:
                    failed.append(letter)
                    print(f"scenario {letter} failed:\n{played().ended.said[-5000:]}", file=sys.stderr)
                    continue
                known[letter] = played().models
                place.write_text(json.dumps(known, sort_keys=True, separators=(",", ":")) + "\n")
    return failed


if __name__ == "__main__":
    arguments = sys.argv[1:]
    wanted = [name for name in arguments if name not in VERSIONS]
    bad = [record(one, wanted) for one in [name for name in arguments if name in VERSIONS] or VERSIONS]
    sys.exit(int(any(bad)))
