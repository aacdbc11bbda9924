"""The LSM service of this test's database."""

from __future__ import annotations

import pytest

from ledger import Ledger
from ledger.pipelines import LSMStateService


@pytest.fixture
def service(log: Ledger) -> LSMStateService:
    return LSMStateService(log)


@pytest.fixture
def grown(service: LSMStateService) -> LSMStateService:
    """Slices 1 and 2, channels 0 and 1, strips 1 and 2 in each."""
    with service.open_project("p") as project:
        for slice_id, channel_id, strip_id in [(s, c, t) for s in (1, 2) for c in (0, 1) for t in (1, 2)]:
            project.get_or_create_strip_by_parts(slice_id, strip_id, channel_id).set_uploaded()
    return service
