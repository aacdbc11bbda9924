"""Scenario B: flows that call flows; one whose child fails, one that is retried and calls its child again."""

from __future__ import annotations

from prefect import flow, tags, task
from prefect.runtime import flow_run
from waiting import report


@task
def mark(strip: int) -> int:
    return strip


@flow(name="b-grandchild", flow_run_name="grandchild {strip}")
def grandchild(strip: int) -> int:
    return mark(strip)


@flow(name="b-child", flow_run_name="child {strip}")
def child(strip: int) -> int:
    return grandchild(strip) + mark(strip)


@flow(name="b-parent", flow_run_name="parent")
def parent() -> int:
    with tags("b-tag"):
        return child(1) + child(mark(2))


@flow(name="b-failing-child", flow_run_name="failing child")
def failing_child() -> None:
    raise ValueError("the child failed")


@flow(name="b-parent-of-failing", flow_run_name="parent of failing")
def parent_of_failing() -> str:
    return str(failing_child(return_state=True).name)


@flow(name="b-unsteady-child", flow_run_name="unsteady child")
def unsteady_child(attempt: int) -> int:
    if attempt < 2:
        raise ValueError("not yet")
    return attempt


@flow(name="b-retried-parent", flow_run_name="retried parent", retries=1)
def retried_parent() -> int:
    child(9)
    return unsteady_child(flow_run.run_count or 0)


def main() -> None:
    ended = [one(return_state=True) for one in (parent, parent_of_failing, retried_parent)]
    report(ended=[[state.type.value, state.name, state.message] for state in ended])


if __name__ == "__main__":
    main()
