"""The PS-OCT service of this test's database."""

from __future__ import annotations

import pytest

from ledger import Ledger
from ledger.pipelines import OCTStateService


@pytest.fixture
def service(log: Ledger) -> OCTStateService:
    return OCTStateService(log)
