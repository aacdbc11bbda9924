"""Names of machines and keys of objects: what can be recorded under, and what is refused."""

from __future__ import annotations

from collections import namedtuple
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from ledger import BadInput, BadName
from ledger.domain.known import KNOWN
from ledger.machines import Machine, State
from tests.machines.payments import Payment


def letters() -> type[Machine]:
    """A machine of the test's own."""

    class Letters(Machine, name="letters"):
        X = State("x", initial=True)

    return Letters


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("Payment", "must be lower-case words"),
        ("a b", "must be lower-case words"),
        ("9a", "must be lower-case words"),
        ("a..b", "must be lower-case words"),
        ("a-b", "must be lower-case words"),
        ("x" * 101, "must be lower-case words"),
        (5, "must be lower-case words"),
        ("machine", "is the category of other streams"),
        ("lamp", "is the category of other streams"),
    ],
)
def test_a_bad_name_of_a_machine_is_refused(name: Any, wrong: str) -> None:
    import tests.lamp  # noqa: F401  (the lamps are streams of their own)

    with pytest.raises(BadName, match=wrong):

        class Named(Machine, name=name):
            pass

    assert name not in KNOWN.machines


def test_a_machine_without_a_name_is_only_a_table() -> None:
    class Table(Machine):
        A = State("a", initial=True)

    assert Table.name not in KNOWN.machines
    with pytest.raises(BadInput, match=r'Table has no name to record under: class Table\(…, name="…"\)'):
        Table(None, 1)


def test_the_later_machine_of_a_name_is_the_one_that_is_known() -> None:
    first, second = letters(), letters()
    assert KNOWN.machines["letters"] is second is not first
    assert first.streams() is second.streams()


Row = namedtuple("Row", "id title")


class Kept(BaseModel):
    id: Any


KEY = UUID("12345678123456781234567812345678")


@pytest.mark.parametrize(
    ("about", "stream"),
    [
        ("PM/1", "letters/PM%2F1"),
        (7, "letters/7"),
        (-7, "letters/-7"),
        (("bank", 7), "letters/bank/7"),
        (Row(7, "a row is an object, whatever its columns hold"), "letters/7"),
        (Kept(id="k"), "letters/k"),
        (Kept(id=("a", 1)), "letters/a/1"),
        (KEY, f"letters/{KEY}"),
        (Kept(id=KEY), f"letters/{KEY}"),
    ],
)
def test_an_object_has_a_key(about: Any, stream: str) -> None:
    assert letters()(None, about).stream == stream


@pytest.mark.parametrize(
    "about", ["", (), ("a", ""), True, (True,), Kept(id=None), Kept(id=1.5), Kept(id="")]
)
def test_a_bad_key_is_refused(about: Any) -> None:
    with pytest.raises(BadInput, match="must be a text that is not empty, an integer, a UUID, or a tuple"):
        letters()(None, about)


@pytest.mark.parametrize("about", [None, 1.5, {"id": 7}, object()])
def test_an_object_without_a_key_is_refused(about: Any) -> None:
    with pytest.raises(BadInput, match=r"has no key: give .* or override Letters\.key_of"):
        letters()(None, about)


def test_how_an_object_is_named_can_be_said() -> None:
    class Numbered(letters(), name="numbered"):  # type: ignore[misc]
        @staticmethod
        def key_of(about: Any) -> Any:
            return about["number"]

    assert Numbered(None, {"number": 5}).stream == "numbered/5"


def test_what_keeps_no_machine_is_refused() -> None:
    place: Any = "postgresql:///ledger"
    with pytest.raises(
        BadInput, match=r"the place of a machine must be a ledger, `ledger\.join\(connection\)`, or"
    ):
        Payment(place, "PM123")
