"""A project as of a position of the log: what a look at that moment showed."""

from __future__ import annotations

import random

from ledger import Ledger
from ledger.pipelines import LSMStateService, LSMStripId


def test_a_project_is_shown_as_it_was(log: Ledger) -> None:
    service = LSMStateService(log)
    seen = {}
    for number in range(30):
        strip_id = random.randrange(4)
        with service.open_strip(LSMStripId("p", random.randrange(2), 0, strip_id)) as strip:
            random.choice((strip.mark_started, strip.mark_completed, strip.set_compressed))()
        if number == 20:
            with service.open_slice("p", slice_id=1) as a_slice:
                a_slice.get_or_create_channel(0)
        seen[log.bound()] = service.peek_project("p")
    for position, view in seen.items():
        assert service.store.peek("p", lambda view: view, upto=position) == view
    last = seen[log.bound()]
    assert service.store.peek("p", lambda view: view, upto=10**6) == last  # not beyond what is safe to read
    assert service.store.peek_item(LSMStripId("p", 0, 0, 9), upto=3) is None
