"""Announces single sets and levels, without a domain that this process would know from then on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from ledger import Ledger
from ledger.domain.level import Level
from ledger.domain.sets import UnitSet
from ledger.log.announce import SQL
from ledger.log.sql import run


def announce_sets(log: Ledger, sets: Iterable[UnitSet]) -> list[str]:
    return _announce(log, {"sets": [one.row() for one in sets]})


def announce_levels(log: Ledger, levels: Mapping[str, Level]) -> list[str]:
    return _announce(log, {"levels": [level.row(category) for category, level in levels.items()]})


def _announce(log: Ledger, parts: Mapping[str, object]) -> list[str]:
    with log.reader() as connection:
        rows = run(connection, log.schema, SQL.announce, parts=json.dumps(parts), only_new=False)
    return list(rows[0][0])
