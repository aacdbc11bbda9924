"""Scenario A: flows with tasks, retries of both, failures, returned states, cached and async tasks."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from prefect import flow, get_run_logger, task
from prefect.cache_policies import INPUTS
from prefect.runtime import flow_run, task_run
from prefect.states import Completed, Failed, State
from waiting import report


@task(tags=["a-slice"], task_run_name="slice {number}")
def cut(number: int) -> int:
    get_run_logger().info("cut slice %d", number)
    return number


@task
def stitch(one: int, two: int) -> int:
    return one + two


@flow(name="a-plain", flow_run_name="plain {sample}", version="7", description="Two slices")
def plain(sample: str, *, options: dict[str, Any] | None = None) -> int:
    get_run_logger().warning("sample %s", sample)
    return stitch(cut(1), cut(2), wait_for=[cut(3)])


@task(retries=2)
def flaky() -> int:
    if task_run.run_count < 3:
        raise ValueError(f"attempt {task_run.run_count}")
    return task_run.run_count


@task(retries=1, retry_delay_seconds=[0.1])
def hopeless() -> None:
    raise ValueError("no light")


@flow(name="a-task-retries")
def task_retries() -> None:
    flaky()
    hopeless()


@task
def once() -> None:
    pass


@flow(name="a-retried", retries=2, retry_delay_seconds=1)
def retried() -> int:
    once()
    if flow_run.run_count < 2:
        raise ValueError("the first attempt")
    return flow_run.run_count


@flow(name="a-retries-used-up", retries=1)
def used_up() -> None:
    raise ValueError("always")


@flow(name="a-returned")
def returned(failing: bool) -> State[Any]:
    return Failed(message="said so") if failing else Completed(name="Skipped", message="nothing to do")


@flow(name="a-mapped")
def mapped() -> int:
    return sum(cut.map([4, 5, 6, 7]).result())


@task(cache_policy=INPUTS, persist_result=True)
def costly(number: int) -> int:
    return number * 2


@flow(name="a-cached", persist_result=True)
def cached() -> list[int]:
    return [costly(3), costly(3)]


@flow(name="a-exits")
def exits() -> None:
    raise SystemExit(3)


@flow(name="a-too-long", timeout_seconds=0.3)
def too_long() -> None:
    time.sleep(30)


@task
async def wait_a_turn(number: int) -> int:
    await asyncio.sleep(0)
    return number


@flow(name="a-async")
async def together() -> list[int]:
    return list(await asyncio.gather(*[wait_a_turn(number) for number in range(3)]))


@flow(name="a-upstream")
def upstream() -> int:
    failed = hopeless.with_options(retries=0).submit()
    return stitch.submit(failed, 1).result(raise_on_failure=True)


def main() -> None:
    ended = {
        "plain": plain("brain-7", options={"resolution": 0.5, "channels": ["a", "b"]}, return_state=True),
        "task retries": task_retries(return_state=True),
        "retried": retried(return_state=True),
        "used up": used_up(return_state=True),
        "failed": returned(True, return_state=True),
        "skipped": returned(False, return_state=True),
        "mapped": mapped(return_state=True),
        "cached": cached(return_state=True),
        "too long": too_long(return_state=True),
        "async": asyncio.run(together(return_state=True)),  # type: ignore[arg-type]
        "upstream": upstream(return_state=True),
    }
    try:
        exits()
    except SystemExit as end:
        report(exit=end.code)
    report(**{name: [state.type.value, state.name, state.message] for name, state in ended.items()})


if __name__ == "__main__":
    main()
