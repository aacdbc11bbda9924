"""What docs/explanation/trust.md says of a forged mark: it can hold readers back, and skips nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from ledger import Body, Exact, Ledger
from ledger.log.append import Append
from ledger.log.appender import send

Connection = psycopg.Connection[Any]
BODY = Body("note.made", 1, "{}")


FORGED = ["", "0", "1", "99999", "-1", "-99999", str(2**48), str(-(2**48))]


@pytest.mark.parametrize("events", [1, 2])
def test_a_forged_mark_lets_no_reader_skip(
    log: Ledger, connect: Callable[..., Connection], events: int
) -> None:
    for number, forged in enumerate(FORGED):
        first = log.append("note/1", BODY).last_position
        liar = connect()
        liar.execute("SELECT set_config(ledger.mark_name(), %s, false)", [forged])
        append = Append(f"note/late/{number}", [BODY] * events, Exact(0))
        late = send(liar, "ledger", [append], "{}", None)
        log.append("note/2", BODY)
        assert log.bound() <= first, forged
        liar.commit()
        seen = [event.position for event in log.log(first, log.bound())]
        assert seen[:events] == list(range(late.first_position, late.last_position + 1)), forged
        assert len(seen) == events + 1, forged
