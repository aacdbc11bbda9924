"""Two runs that begin in one second are two projects."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from tests.demo.conftest import RUN


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module `plan` of the example."""
    monkeypatch.syspath_prepend(str(RUN.parent))
    return importlib.import_module("plan")


def test_no_two_runs_that_name_no_project_share_one(plan: Any) -> None:
    names = {plan.planned(None, None, None, None)[0].project for _ in range(3)}
    assert len(names) == 3
    assert all(plan.checked_project(name) == name for name in names)
