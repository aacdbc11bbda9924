"""The canonical form: what text a value gets, what is refused, and where in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import IntEnum, StrEnum
from typing import Any

import pytest

from ledger import BadBody
from ledger.domain import canonical_json
from ledger.domain.frozen import FrozenDict, frozen


class Colour(StrEnum):
    RED = "red"


class Size(IntEnum):
    SMALL = 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (2**70, "1180591620717411303424"),
        (10**4299, "1" + "0" * 4299),
        (1.0, "1.0"),
        (0.0, "0.0"),
        (0.1 + 0.2, "0.30000000000000004"),
        (1e16, "10000000000000000.0"),
        (-1e16, "-10000000000000000.0"),
        (1e300, "1" + "0" * 300 + ".0"),
        (1.5e22, "15000000000000000000000.0"),
        (5e-324, "5e-324"),
        (1e-7, "1e-07"),
        ("1e+16", '"1e+16"'),
        ("-0.0", '"-0.0"'),
        ("\\u0000", '"\\\\u0000"'),
        ("é🔬\n\x01", '"é🔬\\n\\u0001"'),
        ({"b": 1, "a": [1.5, (2,)]}, '{"a":[1.5,[2]],"b":1}'),
        (FrozenDict({"b": 1, "a": FrozenDict()}), '{"a":{},"b":1}'),
        ({"red": Colour.RED, "size": Size.SMALL}, '{"red":"red","size":1}'),
        ({"é": 1, "z": 2, "Z": 3, "": 4}, '{"":4,"Z":3,"z":2,"é":1}'),
    ],
)
def test_one_text_for_one_value(value: Any, text: str) -> None:
    assert canonical_json.body(value) == text


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        ({"a": [1, float("nan")]}, r"^a\[1\]: nan is not a number that JSON can hold"),
        ({"a": {"b": float("inf")}}, r"^a\.b: inf is not a number"),
        ([float("-inf")], r"^\[0\]: -inf"),
        ({"a": -0.0}, r"^a: -0\.0 would be stored as 0\.0; record 0\.0"),
        ({"a": "x\x00y"}, "^a: contains NUL"),
        ({"x\x00y": 1}, "contains NUL"),
        ({"a": "x\ud800"}, "^a: contains a lone surrogate"),
        ({"x\udfff": 1}, "contains a lone surrogate"),
        ({"a": 10**5000}, "^a: integer of more than 4300 digits"),
        ({"a": {1: 2}}, "^a: a key is int, not text"),
        ({1: "a", "1": "b"}, "a key is int, not text"),
        ({10**5000: 1}, "a key is int, not text"),
        ({None: 1}, "a key is NoneType, not text"),
        ({True: 1}, "a key is bool, not text"),
        ({1.5: 1}, "a key is float, not text"),
        ([[{(1, 2): 1}]], r"^\[0\]\[0\]: a key is tuple, not text"),
        ({"a": b"x"}, "^a: bytes is not JSON"),
        ({"a": {1, 2}}, "^a: set is not JSON"),
        ({"a": object()}, "^a: object is not JSON"),
        ({"a": 1 + 2j}, "^a: complex is not JSON"),
    ],
)
def test_what_would_be_changed_is_refused_by_its_place(value: Any, wrong: str) -> None:
    with pytest.raises(BadBody, match=wrong):
        canonical_json.body(value)


def nested(depth: int, inner: Any, kind: str) -> Any:
    for _ in range(depth):
        inner = [inner] if kind == "list" else {"k": inner}
    return inner


@pytest.mark.parametrize("inner", [1, "s", Size.SMALL, 1e16])
@pytest.mark.parametrize("kind", ["list", "dict"])
@pytest.mark.parametrize("beside", [[], [[], []]])
def test_depth_counts_containers_however_the_text_is_made(inner: Any, kind: str, beside: list[Any]) -> None:
    most = nested(canonical_json.MAX_DEPTH - 1, inner, kind)
    assert json.loads(canonical_json.body([most, *beside])) == [most, *beside]
    with pytest.raises(BadBody, match="nested deeper than 200 levels"):
        canonical_json.body([nested(canonical_json.MAX_DEPTH, inner, kind), *beside])


def test_a_body_that_holds_itself_is_too_deep() -> None:
    knot: list[Any] = []
    knot.append(knot)
    with pytest.raises(BadBody, match="nested deeper than 200 levels"):
        canonical_json.body(knot)
    with pytest.raises(BadBody, match="nested deeper than 200 levels"):
        canonical_json.body(nested(100_000, 1, "list"))


@pytest.mark.parametrize(
    "value",
    [
        "x" * canonical_json.MAX_BYTES,
        "é" * (canonical_json.MAX_BYTES // 2),
        ["y" * canonical_json.MAX_BYTES, 1e16],
    ],
)
def test_a_body_is_at_most_16_mb(value: Any) -> None:
    with pytest.raises(
        BadBody, match=r"has 167772\d\d bytes, more than 16777216; keep large results in a file"
    ):
        canonical_json.body(value)


def test_a_body_of_100_mb_is_refused_before_it_is_walked() -> None:
    with pytest.raises(BadBody, match="more than 16777216"):
        canonical_json.body([["x" * 1000]] * 100_000)


def test_the_largest_body_is_taken() -> None:
    assert len(canonical_json.body("x" * (canonical_json.MAX_BYTES - 2))) == canonical_json.MAX_BYTES


def test_a_message_shows_little_of_a_long_path() -> None:
    with pytest.raises(BadBody) as caught:
        canonical_json.body({"k" * 1_000_000: float("nan")})
    assert len(str(caught.value)) < 250


def test_digests_differ_where_parts_differ() -> None:
    parts: list[tuple[str | bytes | int | None, ...]]
    parts = [
        (),
        ("",),
        ("", ""),
        ("a", "b"),
        ("ab",),
        ("ab", ""),
        (b"ab",),
        (1,),
        ("1",),
        (None,),
        ("n0:",),
        (b"",),
    ]
    assert len({canonical_json.digest(*part) for part in parts}) == len(parts)


def test_frozen_goes_all_the_way_down() -> None:
    value = frozen({"a": [1, {"b": {2, 3}}], "c": ([4],)})
    assert value == {"a": (1, {"b": frozenset({2, 3})}), "c": ((4,),)}
    assert hash(value) == hash(frozen({"c": ([4],), "a": [1, {"b": {3, 2}}]}))
    assert isinstance(value["a"][1], Mapping)
    with pytest.raises(TypeError):
        value["a"][1]["b"] = 1
    with pytest.raises(AttributeError, match="cannot be changed"):
        value.a = 1
