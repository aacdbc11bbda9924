"""Announces single sets, without a domain that this process would know from then on."""

from __future__ import annotations

import json
from collections.abc import Iterable

from ledger import Ledger
from ledger.domain.sets import UnitSet
from ledger.log.announce import SQL
from ledger.log.sql import run


def announce_sets(log: Ledger, sets: Iterable[UnitSet]) -> list[str]:
    parts = {"sets": [one.row() for one in sets]}
    with log.reader() as connection:
        rows = run(connection, log.schema, SQL.announce, parts=json.dumps(parts), only_new=False)
    return list(rows[0][0])
