"""How a guarded function is called: where its ident is found, and what cannot be guarded (spec S0-65)."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from ledger import BadInput, Ledger, UnknownFlag, WrongIdent
from ledger.pipelines import LSMChannelId, LSMStateService, LSMStripId, OCTBatchId, milestone
from tests.pipelines.recorded_facts import recorded

STRIP = LSMStripId("P_1", 1, 0, 2)


def test_a_call_without_an_ident_is_a_type_error_and_does_nothing(
    service: LSMStateService, log: Ledger
) -> None:
    @milestone(service, "compressed", ident="strip_ident")
    def never(*, strip_ident: Any = None, other: Any = None) -> None:
        pytest.fail("it was called")

    wrong: list[dict[str, Any]] = [{}, {"strip_ident": None}, {"strip_ident": "P_1"}, {"other": STRIP}]
    for arguments in wrong:
        with pytest.raises(WrongIdent, match="the argument 'strip_ident' must be an ident") as caught:
            never(**arguments)
        assert isinstance(caught.value, TypeError)
    with pytest.raises(UnknownFlag):
        never(strip_ident=LSMChannelId("p", 1, 0))
    with pytest.raises(WrongIdent):
        never(strip_ident=OCTBatchId("p", 1, 0, 2))
    with pytest.raises(TypeError, match="unexpected"):
        never(strip_ident=STRIP, more=1)  # type: ignore[call-arg]
    assert recorded(log) == []


def test_the_ident_is_found_wherever_python_would_find_it(service: LSMStateService) -> None:
    def by_place(ident: LSMStripId, number: int = 0) -> int:
        return number

    def by_any_name(**named: Any) -> Any:
        return named["number"]

    class Worker:
        @milestone(service, "archived")
        def method(self, ident: LSMStripId, number: int) -> int:
            return number

    asked: list[Callable[[LSMStripId], Any]] = [
        lambda ident: milestone(service, "archived")(by_place)(ident, 7),
        lambda ident: milestone(service, "archived")(by_any_name)(ident=ident, number=7),
        lambda ident: Worker().method(ident, number=7),
    ]
    for number, call in enumerate(asked):
        assert call(LSMStripId("p", 1, 0, number)) == 7
        assert call(LSMStripId("p", 1, 0, number)) is None


def test_a_default_of_the_function_forces_too(service: LSMStateService) -> None:
    @milestone(service, "archived")
    def always(ident: LSMStripId, force_rerun: bool = True) -> str:
        return "done"

    assert [always(STRIP), always(STRIP), always(STRIP, force_rerun=False)] == ["done", "done", None]


def test_the_guarded_function_looks_like_the_function(service: LSMStateService) -> None:
    def compress(ident: LSMStripId, *, level: int = 3) -> int:
        """Make it small."""
        return level

    guarded = milestone(service, "compressed")(compress)
    assert (guarded.__name__, guarded.__doc__) == ("compress", "Make it small.")
    assert inspect.signature(guarded) == inspect.signature(compress)


async def promised(ident: LSMStripId) -> int:
    return 1


async def promised_all(ident: LSMStripId) -> AsyncIterator[int]:
    yield 1


def in_pieces(ident: LSMStripId) -> Iterator[int]:
    yield 1


@pytest.mark.parametrize("function", [promised, promised_all, in_pieces])
def test_what_returns_before_its_work_is_done_is_refused(
    service: LSMStateService, function: Callable[..., Any]
) -> None:
    with pytest.raises(BadInput, match="returns before its work is done"):
        milestone(service, "compressed")(function)


def test_a_function_without_the_named_argument_is_refused(service: LSMStateService) -> None:
    with pytest.raises(BadInput, match="has no argument 'strip_ident'"):
        milestone(service, "compressed", ident="strip_ident")(in_place)


def in_place(ident: LSMStripId) -> None:
    """Without the argument that is asked for."""
