"""What is said of a cron expression that is none: what is wrong, where, and what would be right."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ledger import BadInput
from ledger.jobs.cron import checked_cron

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FIVE = "its 5 fields are minute, hour, day of month, month, day of week"
SIX = "its 6 fields are second, minute, hour, day of month, month, day of week"
COUNT = "there must be five (minute, hour, day of month, month, day of week), or six with seconds first"


@pytest.mark.parametrize(
    ("cron", "said"),
    [
        ("0 0 30 2 *", "never fires: month '2' has no day '30'"),
        ("0 0 31 2,4 *", "never fires: month '2,4' has no day '31'"),
        ("0 0 0 30 FEB *", "never fires: month 'FEB' has no day '30'"),
        ("61 * * * *", f"is not a cron expression: minute must be 0 to 59, not '61'; {FIVE}"),
        ("* 24 * * *", f"is not a cron expression: hour must be 0 to 23, not '24'; {FIVE}"),
        ("0 0 32 2 *", f"is not a cron expression: day of month must be 1 to 31, L or LW, not '32'; {FIVE}"),
        ("0 0 1 13 *", f"is not a cron expression: month must be 1 to 12, or JAN to DEC, not '13'; {FIVE}"),
        (
            "0 0 * * 8",
            f"is not a cron expression: day of week must be 0 to 7, or SUN to SAT, not '8'; {FIVE}",
        ),
        ("61 * * * * *", f"is not a cron expression: second must be 0 to 59, not '61'; {SIX}"),
        ("* 61 * * * *", f"is not a cron expression: minute must be 0 to 59, not '61'; {SIX}"),
        (
            "* * * * * 61",
            f"is not a cron expression: day of week must be 0 to 7, or SUN to SAT, not '61'; {SIX}",
        ),
        ("1 2 3", f"is not a cron expression: it has 3 fields; {COUNT}"),
        ("1 2 3 4 5 6 7", f"is not a cron expression: it has 7 fields; {COUNT}"),
        ("@daily", f"is not a cron expression: it has 1 fields; {COUNT}"),
        ("", f"is not a cron expression: it has 0 fields; {COUNT}"),
    ],
)
def test_it_says_what_is_wrong_and_what_would_be_right(cron: str, said: str) -> None:
    with pytest.raises(BadInput) as refused:
        checked_cron(cron, "UTC", NOW)
    assert str(refused.value) == f"cron {cron!r} {said}"


@pytest.mark.parametrize("cron", ["0 0 29 2 *", "*/10 * * * * *", "0 0 L * *", "0  0 * *  SUN", "0 0 LW 2 *"])
def test_what_comes_some_time_is_let_pass(cron: str) -> None:
    assert checked_cron(cron, "UTC", NOW) == " ".join(cron.split())
