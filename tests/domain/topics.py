"""
ledger/topics.txt: every topic of the shipped domains, with its schema number and its domain.

    python -m tests.domain.topics

writes it anew. A line never goes: who has recorded a topic must be able to read it. A topic that is renamed
stays as a former one (`was=`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ledger.domain.known import KNOWN
from projections import shipped

FILE: Final = Path(__file__).parents[2] / "ledger" / "topics.txt"
HEAD: Final = """\
# Every topic of the shipped domains: topic, number of its schema, domain. No line ever goes.
# Written by `python -m tests.domain.topics`; a test compares it with the code.
"""


def in_code() -> dict[str, tuple[int, str]]:
    """The schema number and the domain of each topic, also of former ones."""
    shipped.load()
    return {
        topic: (kind.schema_number, domain.name)
        for domain in KNOWN.domains.values()
        if domain.is_shipped
        for topic, kind in domain.events.items()
    }


def in_file() -> dict[str, tuple[int, str]]:
    """The same, as the file has it."""
    lines = [line.split() for line in FILE.read_text().splitlines() if not line.startswith("#")]
    return {topic: (int(schema), domain) for topic, schema, domain in lines}


def lost(before: dict[str, tuple[int, str]], now: dict[str, tuple[int, str]]) -> list[str]:
    """The topics that are gone, or whose schema number fell: what was recorded could not be read any more."""
    return sorted(topic for topic, (schema, _) in before.items() if schema > now.get(topic, (0, ""))[0])


def write() -> None:
    """Write the file anew. Raises SystemExit where a topic would go."""
    now = in_code()
    if FILE.exists() and (gone := lost(in_file(), now)):
        raise SystemExit(f"topics are permanent, but these are gone or older: {', '.join(gone)}")
    width = max(map(len, now))
    lines = [f"{topic:{width}} {schema} {domain}\n" for topic, (schema, domain) in sorted(now.items())]
    FILE.write_text(HEAD + "".join(lines))


if __name__ == "__main__":
    write()
