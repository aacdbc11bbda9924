"""The comparison sees what differs, allows what is meant, and the page of differences is fresh."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.prefect.differences import MEANT, differences, page
from tests.prefect.normal import Normal, flat

FIRST, SECOND = "5b7d7d3c-63fb-4a47-8a0b-0a5c8a7f2f10", "018f3a5c-0000-7000-8000-000000000002"


def shown(run: str, at: str, **more: object) -> dict[str, object]:
    """A run as a server shows it, in its normal form."""
    tree = {"runs": [{"id": run, "name": "r", "start_time": at, "key": f"of {run}", "run_count": 1, **more}]}
    return flat(Normal(Path("/folder/of/it")).of(tree))


def test_ids_and_times_do_not_differ() -> None:
    assert shown(FIRST, "2026-05-04T12:00:00Z") == shown(SECOND, "2026-05-05T13:00:01.5+00:00")
    assert shown(FIRST, "2026-05-04T12:00:00Z")["runs[0].key"] == "of <runs 0>"


@pytest.mark.parametrize("more", [{"run_count": 2}, {"start_time": None}, {"id": None}, {"new": None}])
def test_everything_else_does(more: dict[str, object]) -> None:
    usual = shown(FIRST, "2026-05-04T12:00:00Z")
    assert differences("a", usual, usual) == []
    assert len(differences("a", usual, shown(FIRST, "2026-05-04T12:00:00Z", **more))) >= 1


def test_what_is_meant_is_allowed() -> None:
    place = "flows[0].runs[0].states[3].state_details.deployment_concurrency_lease_id"
    assert differences("a", {place: "<id>"}, {}) == []
    assert len(differences("a", {"flows[0].runs[0].states[3].name": "Failed"}, {})) == 1
    assert all(one.reason for one in MEANT)


def test_the_page_is_fresh() -> None:
    written = (ROOT / "docs/reference/prefect-differences.md").read_text()
    assert written == page(), "`python -m tests.prefect.differences > docs/reference/prefect-differences.md`"
