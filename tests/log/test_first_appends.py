"""What a topic leads to is declared by whoever appends it first: views need not be told the domain."""

from __future__ import annotations

import types
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import psycopg
import pytest

import ledger
from ledger import Body, Event, Ledger
from ledger.domain.domain import Domain, domain_of
from ledger.domain.known import KNOWN
from ledger.domain.sets import UnitSet
from ledger.domain.topics import TopicStatus
from ledger.jobs import Jobs
from ledger.log.announce import announce, announce_statuses, announced_statuses
from ledger.log.append_from import Choices
from tests.lamp import Lamp, LampBroke, LampMade, LampRead, OpenLamp
from tests.lamp import Status as Made


class Status(StrEnum):
    BOUGHT = "bought"


class Bought(Event, topic="first_append.bought", to=Status.BOUGHT):
    pass


def announced(log: Ledger) -> dict[str, TopicStatus]:
    with log.reader() as connection:
        return announced_statuses(connection, log.schema)


def test_an_append_declares_its_topic(log: Ledger) -> None:
    log.append("book/1", Bought())
    assert announced(log) == {"first_append.bought": TopicStatus("bought")}
    with log.open(OpenLamp, "a") as lamp:
        lamp.make()
        lamp.read()
    assert set(announced(log)) == {"first_append.bought", "lamp.made"}


def test_a_join_declares_too(log: Ledger, connection: psycopg.Connection[Any]) -> None:
    with log.transaction(connection) as joined:
        joined.append("book/1", Bought())
    assert set(announced(log)) == {"first_append.bought"}


def test_an_append_by_status_announces_too(log: Ledger, dsn: str) -> None:
    with log.open(OpenLamp, "a") as lamp:
        lamp.make()
    with ledger.connect(dsn, actor="another process") as other:
        assert other.append_from("lamp/a", Choices.of(OpenLamp, {Lamp(Made.MADE): LampBroke()})) is not None
    assert set(announced(log)) == {"lamp.made", "lamp.broke"}


def test_the_domains_of_the_ledger_cost_no_call(log: Ledger) -> None:
    Jobs(log).submit("count", {"n": 1})
    assert announced(log) == {}


def test_what_leads_nowhere_is_not_declared(log: Ledger) -> None:
    log.append("lamp/a", LampRead(), Body("somebody.else", 1, "{}"))
    assert announced(log) == {}


def test_what_was_declared_stays(log: Ledger) -> None:
    """Two versions of a program run side by side; only who follows the log with new code changes it."""
    announce_statuses(log, {"first_append.bought": TopicStatus("owned")})
    log.append("book/1", Bought())
    assert announced(log) == {"first_append.bought": TopicStatus("owned")}


def test_a_login_that_may_only_append_appends(log: Ledger, only: Callable[[str], str]) -> None:
    with ledger.connect(only("ledger_writer"), actor="w", create=False) as writer:
        assert writer.append("lamp/a", LampMade()).version == 1


def test_the_first_append_announces_the_whole_domain(log: Ledger) -> None:
    """Also topics that are not appended yet; those of other domains are not announced."""
    module = types.ModuleType("first_append_shop")
    parts = {"__module__": module.__name__}
    sold = type("Sold", (Event,), dict(parts), topic="shop.sold", to=Status.BOUGHT)
    type("Ordered", (Event,), dict(parts), topic="shop.ordered", to=Status.BOUGHT)
    sold_books = UnitSet("book", "shop", done={"bought"})  # type: ignore[arg-type]
    shop = Domain("shop", module.__name__, sets=[sold_books])
    try:
        assert domain_of(sold) is shop
        assert shop.events.keys() == {"shop.sold", "shop.ordered"}
        log.append("shop/1", sold())
        assert set(announced(log)) == {"shop.sold", "shop.ordered"}
        assert announce(log, shop) == []
        with pytest.raises(TypeError, match="another set already"):
            Domain("mall", sets=[UnitSet("book", "mall", done=frozenset({"bought"}))])
        with pytest.raises(TypeError, match="is named 'shop' already"):
            Domain("shop", "elsewhere")
    finally:
        del KNOWN.domains["shop"], KNOWN.events["shop.sold"], KNOWN.events["shop.ordered"]
    assert announce(log, shop) == []
