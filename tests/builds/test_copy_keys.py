"""Keys of the local copy: different parts never meet, and a range holds what is below its parts only."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ledger import PathTooLongError
from projections.builds import keys
from projections.builds.environment import Environment
from projections.builds.keys import below, key, last_part, unescaped

PREFIXES = (*keys.CACHES, *keys.DERIVED, keys.COPY)
TEXTS = st.text(st.sampled_from(["a", "b", ":", "/", "\0", "\1", "\2", "é", "\udc80"]), max_size=4)
ENTRIES = st.tuples(st.sampled_from(PREFIXES), st.lists(TEXTS, min_size=2, max_size=2).map(tuple))


@settings(max_examples=100)
@given(ENTRIES, ENTRIES)
@example((keys.DEP, ("a", "b:c")), (keys.DEP, ("a:b", "c")))
@example((keys.DEP, ("a", "\0b")), (keys.DEP, ("a\0", "b")))
@example((keys.DEP, ("a\1", "b")), (keys.DEP, ("a", "\1b")))
@example((keys.RUN, ("a", "b")), (keys.RUN_CACHE, ("a", "b")))
def test_different_parts_have_different_keys(
    one: tuple[bytes, tuple[str, str]], other: tuple[bytes, tuple[str, str]]
) -> None:
    """W4-07; and the keys in the range of some first parts are those with these first parts."""
    first, second = key(one[0], *one[1]), key(other[0], *other[1])
    assert (first == second) == (one == other)
    range_of = below(one[0], one[1][0])
    assert second.startswith(range_of) == ((one[0], one[1][0]) == (other[0], other[1][0]))


@given(TEXTS, TEXTS)
def test_the_parts_of_a_key_are_read_again(first: str, last: str) -> None:
    found = key(keys.DEP, first, last)
    assert last_part(found, len(below(keys.DEP, first))) == last
    assert keys.text(unescaped(found[len(keys.DEP) :].partition(b"\0")[0])) == first


def test_no_prefix_starts_with_another() -> None:
    assert len(set(PREFIXES)) == len(PREFIXES)
    assert all(one == other or not one.startswith(other) for one in PREFIXES for other in PREFIXES)


def test_w4_06_a_key_that_is_too_long_is_one_error() -> None:
    longest = key(keys.GENERATION, "x" * (keys.LONGEST - len(keys.GENERATION)))
    assert len(longest) == keys.LONGEST
    with pytest.raises(PathTooLongError, match=f"512 bytes, more than the maximum of {keys.LONGEST}"):
        key(keys.GENERATION, "é" + "x" * (keys.LONGEST - len(keys.GENERATION) - 1))
    with pytest.raises(PathTooLongError):
        key(keys.REMOTE, "r" * 500, "0" * 64)
    with pytest.raises(PathTooLongError):
        keys.raw(b"x" * 508)


def test_w4_07_a_range_does_not_leak(tmp_path: Path) -> None:
    """Stage `a` with dependency `b:c` is not `a:b` with `c`; and runs are not the run cache."""
    environment = Environment(tmp_path)
    pairs = [("a", "b:c"), ("a:b", "c"), ("a", "d"), ("a\0", "e"), ("", "f"), ("a", "")]
    environment.write(lambda writer: [writer.put(key(keys.DEP, *pair), b"") for pair in pairs])
    environment.write(lambda writer: writer.put(key(keys.RUN_CACHE, "a", "b"), b""))
    environment.write(lambda writer: writer.put(key(keys.RUN, "a"), b""))
    with environment.reading() as reader:
        start = len(below(keys.DEP, "a"))
        found = [last_part(one, start) for one, _ in keys.entries(reader, below(keys.DEP, "a"))]
        assert found == ["", "b:c", "d"]
        assert [one for one, _ in keys.entries(reader, keys.RUN)] == [b"run:a"]
    assert environment.write(lambda writer: keys.clear(writer, below(keys.DEP, "a"))) == 3
    with environment.reading() as reader:
        assert len([*keys.entries(reader, keys.DEP)]) == 3
    environment.close()
