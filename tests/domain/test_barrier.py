"""The law of the barrier: a set of members is complete by who is in it, and closes once."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.domain.barrier import Barrier, Outcome

OVER = {Outcome.DONE, Outcome.FAILED, Outcome.GONE}
MEMBERS = st.integers(1, 4)
OUTCOMES = st.sampled_from([*Outcome]) | st.none()
NOTES = st.lists(st.tuples(MEMBERS, OUTCOMES), max_size=12)
EXPECTED = st.integers(0, 5) | st.none()
RATIOS = st.sampled_from([None, 0.3, 0.5, 1.0])
LAW = settings(max_examples=300, deadline=None)


def naive(
    notes: Sequence[tuple[int, Outcome | None]], expected: int | None, numbered: bool, ratio: float | None
) -> bool:
    """Whether the set is complete, by looking at all that was noted."""
    last = dict(notes)
    now = {member: outcome for member, outcome in last.items() if outcome is not None}
    if expected is None:
        return False
    failed = [member for member, outcome in now.items() if outcome is Outcome.FAILED]
    if ratio is not None and failed and expected and len(failed) / expected >= ratio:
        return True
    if numbered:
        return all(now.get(number) in OVER for number in range(1, expected + 1))
    return len(now) >= expected and all(outcome in OVER for outcome in now.values())


def noted(notes: Sequence[tuple[int, Outcome | None]], *how: object) -> Barrier[int]:
    expected, numbered, ratio = how
    barrier = Barrier[int](expected, numbered=numbered, failure_ratio=ratio)  # type: ignore[arg-type]
    for member, outcome in notes:
        barrier.note(member, outcome)
    return barrier


@LAW
@given(NOTES, EXPECTED, st.booleans(), RATIOS)
def test_a_set_is_complete_by_the_last_outcome_of_each_member(
    notes: list[tuple[int, Outcome | None]], expected: int | None, numbered: bool, ratio: float | None
) -> None:
    barrier = noted(notes, expected, numbered, ratio)
    assert barrier.complete == naive(notes, expected, numbered, ratio)
    for outcome in Outcome:
        assert barrier.count(outcome) == [*barrier.outcomes.values()].count(outcome)
    assert barrier.over == sum(map(barrier.count, OVER)) == len(barrier) - barrier.count(Outcome.WAITING)


@LAW
@given(NOTES, EXPECTED, st.booleans(), RATIOS)
def test_a_note_that_is_repeated_changes_nothing(
    notes: list[tuple[int, Outcome | None]], expected: int | None, numbered: bool, ratio: float | None
) -> None:
    twice = noted([note for note in notes for _ in range(2)], expected, numbered, ratio)
    once = noted(notes, expected, numbered, ratio)
    assert (twice.outcomes, twice.complete) == (once.outcomes, once.complete)


@LAW
@given(st.dictionaries(MEMBERS, OUTCOMES), EXPECTED, st.booleans(), RATIOS, st.randoms())
def test_the_order_of_members_makes_no_difference(
    last: dict[int, Outcome | None], expected: int | None, numbered: bool, ratio: float | None, chance: object
) -> None:
    notes = [*last.items()]
    before = noted(notes, expected, numbered, ratio)
    chance.shuffle(notes)  # type: ignore[attr-defined]
    after = noted(notes, expected, numbered, ratio)
    assert (after.outcomes, after.complete) == (before.outcomes, before.complete)


@LAW
@given(st.lists(NOTES, max_size=5), st.integers(0, 4), st.booleans())
def test_a_set_closes_with_the_append_that_completes_it(
    appends: list[list[tuple[int, Outcome | None]]], expected: int, numbered: bool
) -> None:
    """However it was in the midst; and a barrier that begins in the middle of the log closes the same."""
    barrier = Barrier[int](expected, numbered=numbered)
    seen: list[tuple[int, Outcome | None]] = []
    for nth, append in enumerate(appends):
        was = naive(seen, expected, numbered, None)
        late = noted(seen, expected, numbered, None)
        for note in append:
            for one in (barrier, late):
                one.begin(nth)
                one.note(*note)
            seen.append(note)
        if append:
            closed = naive(seen, expected, numbered, None) and not was
            assert barrier.closes == late.closes == closed


def test_what_was_read_in_the_midst_of_an_append_is_told_what_was_before() -> None:
    barrier = noted([(1, Outcome.DONE)], 1, False, None)
    barrier.begin("append", was_complete=False)
    barrier.begin("append")
    assert barrier.closes


def test_a_larger_number_opens_a_set_again() -> None:
    barrier = noted([(1, Outcome.DONE)], 1, False, None)
    barrier.begin(1)
    barrier.expected = 2
    assert barrier.complete is False
    barrier.begin(2)
    barrier.note(2, Outcome.GONE)
    assert barrier.closes
    barrier.clear()
    assert (barrier.complete, len(barrier)) == (False, 0)
