"""Names of runs: the inverse of `str(ident)`, and what else may stand in one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ledger import BadInput, BadName
from ledger.pipelines import LSMChannelId, LSMProjectId, LSMSliceId, LSMStripId
from ledger.pipelines.ident import Ident, ident_of, missing_required_fields, parse_run_name
from ledger.pipelines.psoct import OCTBatchId, OCTMosaicId, OCTProjectId, OCTSliceId

KINDS: list[type[Ident]] = [
    *(LSMProjectId, LSMSliceId, LSMChannelId, LSMStripId),
    *(OCTProjectId, OCTSliceId, OCTMosaicId, OCTBatchId),
]
NASTY = "'\"\\=\n\r\t\x01\x7f\xad é\u2028\ufeff𐏿\U000e0001 slice_id=9 uUxN09afAF"
TEXTS = st.text(st.one_of(st.sampled_from(NASTY), st.characters(codec="utf-8", exclude_characters="\0")))
NAMES = TEXTS.filter(lambda text: 0 < len(text.encode()) < 300)
IDS = st.integers(0, 2**63 - 1)
KEYS = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,9}", fullmatch=True)


def ident(kind: type[Ident], name: str, ids: list[int]) -> Ident:
    parts: dict[str, Any] = dict(zip(kind.fields()[1:], ids, strict=False))
    return kind(name, **parts)


# The inverse of the text of an ident.


@given(st.sampled_from(KINDS), NAMES, st.lists(IDS, min_size=3, max_size=3))
@example(LSMStripId, 'it\'s "so"', [0, 1, 2])
@example(LSMStripId, "ends with \\", [0, 1, 2])
@example(LSMStripId, "' slice_id=7 x='", [0, 1, 2])
@example(LSMStripId, "\\n is no newline, \n is", [0, 1, 2])
@example(OCTBatchId, "\\U0010ffff \\ud800 \\xff", [0, 1, 2**63 - 1])
def test_every_ident_comes_back_from_its_text(kind: type[Ident], name: str, ids: list[int]) -> None:
    given_ident = ident(kind, name, ids)
    parsed = parse_run_name(str(given_ident))
    assert list(parsed.items()) == [(field, getattr(given_ident, field)) for field in kind.fields()]
    assert ident_of(kind, str(given_ident)) == ident_of(kind, parsed) == given_ident
    assert type(ident_of(kind, parsed)) is kind


@given(st.dictionaries(KEYS, st.one_of(st.integers(-(2**70), 2**70), st.text())))
def test_any_fields_come_back_in_their_order(fields: dict[str, str | int]) -> None:
    text = " ".join(f"{key}={value!r}" for key, value in fields.items())
    assert list(parse_run_name(text).items()) == list(fields.items())


@given(NAMES, st.sampled_from(["", "process-mosaic-", "é", "(", "x ", "07", "= ", "a.b,"]))
def test_what_stands_around_changes_nothing(name: str, before: str) -> None:
    text = f"{before}{LSMSliceId(name, 3)}, retry-2 of 5 (late)"
    assert parse_run_name(text) == {"project_name": name, "slice_id": 3}


@given(st.text())
def test_no_text_is_too_odd(text: str) -> None:
    assert all(isinstance(value, str | int) for value in parse_run_name(text).values())


# Single tokens.


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("project_name='111'", {"project_name": "111"}),
        ("project_name='111' slice_id=1 mosaic_id=4", {"project_name": "111", "slice_id": 1, "mosaic_id": 4}),
        (
            "process-mosaic-project_name='111' slice_id=1 some_flag='x'",
            {"project_name": "111", "slice_id": 1, "some_flag": "x"},
        ),
        ('a="it\'s"', {"a": "it's"}),
        (r"a='it\'s'", {"a": "it's"}),
        (r"a='\\n' b='\n' c='\t\x41\u00e9\U0001f600'", {"a": r"\n", "b": "\n", "c": "\tAé😀"}),
        (r"a='\d \q \x4 \U00110000'", {"a": r"\d \q \x4 \U00110000"}),
        ("a='' b=\"\"", {"a": "", "b": ""}),
        ("a='x\ny'", {"a": "x\ny"}),
        ("a=-1 b=+2 c=007 d=-0", {"a": -1, "b": 2, "c": 7, "d": 0}),
        ("a=1,b=2;c=3. d=4", {"a": 1, "b": 2, "c": 3, "d": 4}),
        ("a=1 a=2 b=1", {"a": 2, "b": 1}),
        ("a=1.5 b=1st c=1_0 d=x e= f='open", {}),
        ("a = 1 b =2 c= 3", {}),
        ("a=٣ é=1 -=2 =3", {}),
        ("a=b=1", {"b": 1}),
        ("a='b=1 c=\"2\"' d=3", {"a": 'b=1 c="2"', "d": 3}),
        ("curious-crab", {}),
        ("", {}),
    ],
)
def test_tokens(text: str, fields: dict[str, str | int]) -> None:
    assert parse_run_name(text) == fields


def test_a_number_without_end_is_no_number() -> None:
    assert parse_run_name("a=" + "9" * 100_000) == {}


def test_long_names_take_no_time() -> None:
    """Each would take hours, were a key or a value looked for again from each letter."""
    for text in ("a" * 10**6, "a1" * 10**6, "1" * 10**6, "a='" + "\\'" * 10**6, "a='\"" * 10**5):
        parse_run_name(text)


@pytest.mark.parametrize("bad", [None, 7, b"a=1", ["a=1"]], ids=repr)
def test_what_is_no_text_is_refused(bad: Any) -> None:
    with pytest.raises(BadInput, match="a run's name must be text, not"):
        parse_run_name(bad)


# Fields that are needed.


def test_missing_fields_are_listed_in_the_order_asked() -> None:
    fields = parse_run_name("slice_id=1 other=2")
    assert missing_required_fields(fields, ("strip_id", "slice_id", "project_name")) == [
        "strip_id",
        "project_name",
    ]
    assert missing_required_fields(fields, ()) == []
    assert missing_required_fields({"slice_id": None}, ("slice_id",)) == []


def test_an_ident_needs_its_fields_and_no_others() -> None:
    assert ident_of(LSMSliceId, str(LSMStripId("p", 1, 2, 3))) == LSMSliceId("p", 1)
    with pytest.raises(
        BadInput, match="does not name a LSMStripId: channel_id and strip_id must be given, such as"
    ):
        ident_of(LSMStripId, "project_name='p' slice_id=1")
    with pytest.raises(BadInput, match="project_name='brain' slice_id=1 mosaic_id=1"):
        ident_of(OCTMosaicId, "curious-crab")


@pytest.mark.parametrize(
    "text",
    [
        "project_name=111 slice_id=1",  # as text it could have been 0111
        "project_name='' slice_id=1",
        "project_name='p' slice_id=-1",
        "project_name='p' slice_id='1'",
        f"project_name='p' slice_id={2**63}",
        r"project_name='\x00' slice_id=1",
        r"project_name='\ud800' slice_id=1",
    ],
)
def test_a_value_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(BadName):
        ident_of(LSMSliceId, text)
