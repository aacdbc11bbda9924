"""A function guarded by a flag: the rows of S0-65, the hooks, and who may skip (W0-10, W0-18)."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from ledger import ClaimLost, Ledger, LockTimeout
from ledger.pipelines import (
    Entry,
    LSMStateService,
    LSMStripId,
    LSMStripStateView,
    RunDecision,
    enter_milestone_stage,
    milestone,
)
from tests.pipelines.crowd import open_elsewhere
from tests.pipelines.recorded_facts import recorded, words

STRIP = LSMStripId("P_1", 1, 0, 2)
STREAM = "lsm.strip/p-1/1/0/2"


class Story:
    """A guarded function, whose work and hooks write down what happened, and what the strip was like then."""

    def __init__(self, service: LSMStateService, **asked: Any) -> None:
        self.service, self.told = service, list[Any]()
        self.result: Any = 42
        self.error: BaseException | None = None

        @milestone(
            service,
            "compressed",
            ident="strip_ident",
            on_success=lambda ident, result: self.tell("success", ident, result),
            **{"on_failure": lambda ident, error: self.tell("failure", ident, error), **asked},
        )
        def work(*, strip_ident: LSMStripId, force_rerun: bool = False, payload: Any = None) -> Any:
            self.tell("work", strip_ident)
            if self.error is not None:
                raise self.error
            return self.result

        self.call = work

    def tell(self, *what: Any) -> None:
        strip = self.strip
        self.told.append((*what, strip.compressed, [claim.milestone for claim in strip.under_way]))

    @property
    def strip(self) -> LSMStripStateView:
        strip = self.service.peek_strip(STRIP)
        assert strip is not None
        return strip


def test_success_sets_the_flag_then_tells(service: LSMStateService, log: Ledger) -> None:
    story = Story(service)
    assert story.call(strip_ident=STRIP) == 42
    assert story.told == [
        ("work", STRIP, False, ["compressed"]),
        ("success", STRIP, 42, True, []),
    ]
    assert words(log, STREAM) == ["created", "reset", "entered", "compressed"]


def test_what_is_done_is_skipped_unless_forced(service: LSMStateService, log: Ledger) -> None:
    story = Story(service)
    with service.open_strip(STRIP) as strip:
        strip.set_compressed()
    before = recorded(log)
    for payload in (None, {}, {"force_rerun": 0}, "force_rerun"):
        assert story.call(strip_ident=STRIP, payload=payload) is None
    assert (story.told, recorded(log)) == ([], before)
    ways: list[dict[str, Any]] = [{"force_rerun": True}, {"payload": {"force_rerun": 1}}]
    for way in ways:
        assert story.call(strip_ident=STRIP, **way) == 42
    assert [told[0] for told in story.told] == ["work", "success"] * 2


def test_what_is_under_way_is_skipped_unless_forced(service: LSMStateService) -> None:
    story, anyway = Story(service), Story(service, skip_if_running=False)
    enter_milestone_stage(service, STRIP, "compressed")
    assert story.call(strip_ident=STRIP) is None
    assert story.call(strip_ident=STRIP, force_rerun=True) == 42
    with service.open_strip(STRIP) as strip:
        strip.enter("compressed")
    assert anyway.call(strip_ident=STRIP) == 42


@pytest.mark.parametrize("where", ["function", "evaluate_result"])
def test_an_exception_leaves_the_claim_tells_and_goes_on(
    service: LSMStateService, log: Ledger, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    error = ValueError("no focus")

    def evaluate(result: int) -> None:
        assert result == 42
        if where == "evaluate_result":
            raise error

    story = Story(service, evaluate_result=evaluate)
    story.error = error if where == "function" else None
    with pytest.raises(ValueError, match="no focus") as caught:
        story.call(strip_ident=STRIP)
    assert caught.value is error
    assert story.told == [("work", STRIP, False, ["compressed"]), ("failure", STRIP, error, False, [])]
    left = log.read(STREAM)[-1]
    assert left.topic == "lsm.strip.left"
    assert left.data == '{"reason": "ValueError: no focus", "milestone": "compressed"}'
    assert f"{STRIP}: claim 1 on compressed failed: ValueError: no focus" in caplog.messages
    story.error = None
    if where == "function":
        assert story.call(strip_ident=STRIP) == 42  # nothing stands in the way of the next try


def test_w0_18_without_a_hook_a_failure_is_recorded_and_logged(
    service: LSMStateService, log: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    story = Story(service, on_failure=None)
    story.error = NotImplementedError()
    with pytest.raises(NotImplementedError):
        story.call(strip_ident=STRIP)
    assert words(log, STREAM)[-1] == "left"
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


def test_what_on_failure_raises_is_logged_and_goes_no_further(
    service: LSMStateService, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(ident: LSMStripId, error: Exception) -> None:
        raise RuntimeError("the messenger is ill")

    story = Story(service, on_failure=broken)
    story.error = KeyError("x")
    with pytest.raises(KeyError) as caught:
        story.call(strip_ident=STRIP)
    assert caught.value is story.error
    assert "the messenger is ill" in caplog.text
    assert story.strip.under_way == ()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1)])
def test_an_interrupt_gives_the_claim_up_and_is_no_failure_to_tell(
    service: LSMStateService, log: Ledger, error: BaseException
) -> None:
    story = Story(service)
    story.error = error
    with pytest.raises(type(error)):
        story.call(strip_ident=STRIP)
    assert story.told == [("work", STRIP, False, ["compressed"])]
    assert words(log, STREAM)[-1] == "left"


@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize(
    "said", [RunDecision.SKIPPED, Entry(RunDecision.SKIPPED, STRIP)], ids=["decision", "entry"]
)
def test_w0_10_work_that_decides_to_skip_is_not_marked_as_done(
    service: LSMStateService, log: Ledger, said: Any, forced: bool
) -> None:
    story = Story(service, evaluate_result=lambda result: pytest.fail("there is no result"))
    story.result = said
    if forced:
        with service.open_strip(STRIP) as strip:
            strip.set_compressed()
    assert story.call(strip_ident=STRIP, force_rerun=forced) is None
    assert [told[0] for told in story.told] == ["work"]
    assert not story.strip.compressed
    assert words(log, STREAM)[-1] == "left"
    assert log.read(STREAM)[-1].data == '{"reason": "the work decided to skip", "milestone": "compressed"}'


def test_any_other_result_is_a_success(service: LSMStateService) -> None:
    story, results = Story(service), [None, 0, "skipped", RunDecision.STARTED]
    for story.result in results:
        assert story.call(strip_ident=STRIP, force_rerun=True) == story.result
        assert story.strip.compressed
    assert [told[0] for told in story.told] == ["work", "success"] * len(results)


def test_the_result_of_who_lost_the_claim_changes_nothing(service: LSMStateService, log: Ledger) -> None:
    def take_over(result: Any) -> None:
        enter_milestone_stage(service, STRIP, "compressed", force_rerun=True)

    story = Story(service, evaluate_result=take_over)
    with pytest.raises(ClaimLost):
        story.call(strip_ident=STRIP)
    assert [told[0] for told in story.told] == ["work"]  # no hook: what it made may be the other's by now
    assert words(log, STREAM)[1:] == ["reset", "entered"] * 2


def test_what_on_success_raises_is_raised_and_the_flag_stays(service: LSMStateService) -> None:
    def broken(ident: LSMStripId, result: int) -> None:
        raise RuntimeError("the messenger is ill")

    guarded = milestone(service, "compressed", on_success=broken)(lambda ident: 42)
    with pytest.raises(RuntimeError):
        guarded(ident=STRIP)
    strip = service.read_strip(STRIP)
    assert strip is not None
    assert strip.compressed


def test_it_waits_for_a_scope_elsewhere_no_longer_than_it_may(
    service: LSMStateService, log: Ledger, dsn: str
) -> None:
    story = Story(service, timeout_seconds=0.05)
    with open_elsewhere(dsn, "P_1"), pytest.raises(LockTimeout):
        story.call(strip_ident=STRIP)
    assert story.told == []
    assert story.call(strip_ident=STRIP) == 42
