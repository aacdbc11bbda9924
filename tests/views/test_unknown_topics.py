"""Topics of a view that nobody has ever heard of are told."""

from __future__ import annotations

from ledger import Body, Ledger
from projections.engine.rebuild import rebuild
from projections.engine.topics import warning
from tests.views.lamps import lamps
from tests.views.views_of_tests import Declare, declare  # noqa: F401  a fixture


def test_a_topic_that_nobody_knows_is_told(log: Ledger, declare: Declare) -> None:  # noqa: F811
    lamps(log, 2)
    log.append("lamp/1", Body("lamp.of_newer_code", 1, "{}"))
    view = declare(topics=("lamp.made", "lamp.mode", "lamp.of_newer_code"))
    made = rebuild(log, view)
    assert made.unknown_topics == ("lamp.mode",)
    assert "'lamp.mode' (did you mean 'lamp.made'?)" in warning(view.name, made.unknown_topics)
    assert rebuild(log, declare(number=2)).unknown_topics == ()
