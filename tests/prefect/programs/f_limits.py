"""Scenario F: global limits, limits by tag, rates; slots are given back, also when the work fails."""

from __future__ import annotations

from commands import done, prefect
from prefect import flow, task
from prefect.client.orchestration import get_client
from prefect.concurrency.sync import concurrency, rate_limit
from waiting import report


@task
def use_camera(number: int) -> int:
    with concurrency("f-camera", occupy=1, timeout_seconds=60):
        return number


@task
def drop_camera() -> None:
    with concurrency("f-camera", occupy=2):
        raise ValueError("dropped")


@task(tags=["f-laser"])
def fire(number: int) -> int:
    rate_limit("f-shots")
    return number


@task(tags=["f-unlimited"])
def free() -> None:
    pass


@flow(name="f-limited", flow_run_name="limited")
def limited() -> int:
    free()
    shots = fire.map([1, 2, 3])
    pictures = [use_camera(number) for number in range(2)]
    drop_camera(return_state=True)
    with concurrency(["f-camera", "f-unknown"], occupy=1):
        pass
    return sum(shots.result()) + sum(pictures)


@flow(name="f-refused", flow_run_name="refused")
def refused() -> None:
    with concurrency("f-strict-unknown", strict=True):
        pass


def too_slow() -> str:
    with concurrency("f-camera", occupy=2):
        try:
            with concurrency("f-camera", occupy=1, timeout_seconds=0.5):
                return "taken"
        except TimeoutError as error:
            return type(error).__name__
        except Exception as error:
            return type(error).__name__


def main() -> None:
    done("global-concurrency-limit", "create", "f-camera", "--limit", "2")
    done("gcl", "create", "f-shots", "--limit", "5", "--slot-decay-per-second", "5")
    done("gcl", "create", "f-off", "--limit", "4", "--disable")
    done("gcl", "update", "f-off", "--limit", "6")
    done("concurrency-limit", "create", "f-laser", "2")
    done("concurrency-limit", "create", "f-other", "3")
    limited_state = limited(return_state=True)
    refused_state = refused(return_state=True)
    with get_client(sync_client=True) as client:
        taken = client.increment_concurrency_slots(["f-camera"], 1, "concurrency")
        before = client.release_concurrency_slots(["f-camera"], 1, 0.5)
    report(
        limited=[limited_state.name, limited_state.message],
        refused=[refused_state.name, refused_state.message],
        too_slow=too_slow(),
        by_hand=[taken.status_code, before.status_code],
        delete=done("concurrency-limit", "delete", "f-other").strip(),
        missing=prefect("gcl", "inspect", "f-nothing")[0],
    )


if __name__ == "__main__":
    main()
