"""Stream names: what is a name, what is refused, and that no two keys share one."""

from __future__ import annotations

import pytest

from ledger import BadInput, BadName, split_name, stream_name
from ledger.domain.names import MAX_BYTES, checked, checked_command, checked_id, checked_topic, project_key

HOSTILE = [
    "",
    ":",
    "/",
    "%",
    "%2F",
    "%25",
    "//",
    "a/b",
    "a%b",
    "A",
    "a",
    "_",
    "-",
    " ",
    "\n",
    "\x7f",
    "é",
    "e\u0301",
]
HOSTILE += ["\U0010ffff", "%U", "\x10FFFF", "🔬", ".", "..", "'", '"', "\\", "%%", "a:b", "1", "01"]


def kind_of(value: object) -> str:
    """What to call a parameter that is too long, or no text."""
    return type(value).__name__


def test_a_name_reads_as_its_key() -> None:
    assert stream_name("lsm.strip", "brain-7", 1, 0, 2) == "lsm.strip/brain-7/1/0/2"
    assert stream_name("lamp") == "lamp"
    assert stream_name("lamp", "a/b%c:d") == "lamp/a%2Fb%25c:d"


def test_no_two_hostile_keys_share_a_name() -> None:
    keys = [(a, b) for a in HOSTILE for b in HOSTILE] + [(a,) for a in HOSTILE] + [()]
    names = {stream_name("c", *key): key for key in keys}
    assert len(names) == len(keys)
    assert all(split_name(name) == ("c", key) for name, key in names.items())


def test_an_integer_part_is_its_decimal_text() -> None:
    assert stream_name("c", 7) == stream_name("c", "7")
    assert stream_name("c", -7) == "c/-7"


@pytest.mark.parametrize(
    ("category", "parts", "wrong"),
    [
        ("", (), "category '' must be lower-case"),
        ("Lamp", (), "must be lower-case"),
        ("la mp", (), "must be lower-case"),
        ("lamp/", (), "must be lower-case"),
        (5, (), "category 5 must be lower-case"),
        ("lamp", (1.0,), "key part 1.0 must be text or an integer"),
        ("lamp", (True,), "key part True must be text or an integer"),
        ("lamp", (None,), "key part None must be text or an integer"),
        ("lamp", (b"x",), "must be text or an integer"),
        ("lamp", (2**63,), "integer of 64 bits"),
        ("lamp", (10**5000,), "of int must be text or an integer of 64 bits"),
        ("lamp", ("a\x00b",), "contains NUL"),
        ("lamp", ("a\ud800b",), "contains a lone surrogate"),
        ("lamp", ("x" * 1000,), "has 1005 bytes, more than 1000"),
        ("lamp", ("é" * 500,), "has 1005 bytes, more than 1000"),
    ],
    ids=kind_of,
)
def test_what_cannot_be_a_name_is_refused(category: str, parts: tuple[str | int, ...], wrong: str) -> None:
    with pytest.raises(BadName, match=wrong):
        stream_name(category, *parts)


@pytest.mark.parametrize(
    "name", ["", None, 5, b"a", "a\x00", "\udfff", "x" * (MAX_BYTES + 1), "a\U0010ffffb"]
)
def test_a_name_given_whole_is_checked_too(name: str) -> None:
    with pytest.raises(BadName, match="stream name"):
        checked(name)


@pytest.mark.parametrize("name", ["x" * MAX_BYTES, "Any thing/at:all %", "\x01", "0f7d-uuid", "é" * 500])
def test_names_of_other_applications_are_taken(name: str) -> None:
    assert checked(name) == name


@pytest.mark.parametrize(
    "topic", ["", "Strip.done", "strip..done", ".strip", "strip.", "strip done", "é", "a" * 201, None]
)
def test_a_topic_is_lower_case_words_and_dots(topic: str) -> None:
    with pytest.raises(BadName, match="lower-case words joined by dots"):
        checked_topic(topic)


@pytest.mark.parametrize("command", ["", 7, None, "a\x00", "\ud800", "x" * 1001])
def test_a_command_id_is_text(command: str) -> None:
    with pytest.raises(BadName, match="command id"):
        checked_command(command)


@pytest.mark.parametrize("value", [-1, 1.0, True, "1", None, 2**63, 10**5000], ids=kind_of)
def test_an_id_is_an_integer_from_0(value: int) -> None:
    with pytest.raises(BadName, match=r"slice_id .*must be an integer, 0 or more"):
        checked_id("slice_id", value)


def test_right_ids_are_taken() -> None:
    assert [checked_id("slice_id", value) for value in (0, 1, 2**63 - 1)] == [0, 1, 2**63 - 1]


def test_a_project_has_one_key_however_it_is_spelled() -> None:
    assert project_key("Brain_7") == project_key("brain-7") == project_key("BRAIN-7") == "brain-7"
    for wrong in ("", None, 7):
        with pytest.raises(BadName, match="project_name"):
            project_key(wrong)  # type: ignore[arg-type]


def test_a_refusal_is_a_value_error_and_shows_little_of_what_was_given() -> None:
    with pytest.raises(BadInput) as caught:
        checked("x" * 10_000_000)
    assert isinstance(caught.value, ValueError)
    assert len(str(caught.value)) < 200
