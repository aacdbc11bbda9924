"""What all reports share: percent, milestones, and text that Markdown shows as it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.pipelines import lsm_project_summary, markdown, milestones, percent, percent_text
from projections.pipelines.report import escaped
from tests.projections.pipelines.trees import lsm

SHARES = st.integers(0, 2**70).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total)))


@pytest.mark.parametrize(
    ("done", "total", "text"),
    [
        (0, 0, "0.0%"),
        (0, 3, "0.0%"),
        (1, 3, "33.3%"),
        (2, 3, "66.7%"),
        (3, 3, "100.0%"),
        (1, 8, "12.5%"),
        (9_999, 10_000, "99.9%"),  # rounded, it would say that all is done
        (10_000, 10_000, "100.0%"),
        (1, 10_000, "0.0%"),
    ],
)
def test_percent_has_one_decimal(done: int, total: int, text: str) -> None:
    assert percent_text(done, total) == text


@given(SHARES)
def test_percent_stays_within_its_bounds(share: tuple[int, int]) -> None:
    done, total = share
    assert 0.0 <= percent(done, total) <= 100.0
    assert (percent_text(done, total) == "100.0%") is (0 < total == done)


@pytest.mark.parametrize(
    ("done", "total", "reached"),
    [
        (0, 0, []),
        (0, 4, []),
        (1, 4, [25]),
        (2, 4, [25, 50]),
        (3, 4, [25, 50, 75]),
        (4, 4, [25, 50, 75, 100]),
        (33, 100, [25]),
        (10**17 - 1, 10**17, [25, 50, 75]),  # as a float, this is 100 %
    ],
)
def test_milestones(done: int, total: int, reached: list[int]) -> None:
    assert [part.percent for part in milestones(done, total)] == [25, 50, 75, 100]
    assert [part.percent for part in milestones(done, total) if part.reached] == reached


def test_a_milestone_as_text() -> None:
    assert [str(part) for part in milestones(1, 2)] == [
        "✅ 25% Complete",
        "✅ 50% Complete",
        "⏳ 75% Complete",
        "⏳ 100% Complete",
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("brain_7", "brain_7"),
        ("_brain_ 7", r"\_brain\_ 7"),
        ("a|b", r"a\|b"),
        ("<b>&*x*[y](z)`#~", r"\<b\>\&\*x\*\[y\](z)\`\#\~"),
        ("back\\slash", r"back\\slash"),
        ("two\nlines\t", r"two\\nlines\\t"),
        ("\u2028\x07", r"\\u2028\\x07"),
        ("Gehirn ä 脳", "Gehirn ä 脳"),
    ],
)
def test_text_is_shown_as_it_is(text: str, shown: str) -> None:
    assert escaped(text) == shown


@given(st.text(min_size=1))
def test_no_name_breaks_the_report(name: str) -> None:
    """As many lines, whatever the project is called."""
    usual = markdown(lsm_project_summary(lsm({(1, 1): {1: "completed"}}), 1))
    odd = markdown(lsm_project_summary(lsm({(1, 1): {1: "completed"}}, name=name), 1))
    assert len(odd.splitlines()) == len(usual.splitlines())
    assert odd.splitlines()[3:] == usual.splitlines()[3:]
