"""What a real client of Prefect does for `dev.py bench runs`: flows of five tasks, one after the other.

`five_tasks.py FLOWS` prints the seconds that they took, from the first begin to the last end; the
first flow warms up and is not counted.
"""

from __future__ import annotations

import sys
import time

from prefect import flow, task


@task
def double(number: int) -> int:
    return number * 2


@flow
def five_tasks() -> int:
    return sum(double(number) for number in range(5))


def main() -> None:
    five_tasks()
    begin = time.perf_counter()
    for _ in range(int(sys.argv[1])):
        five_tasks()
    print(time.perf_counter() - begin)


if __name__ == "__main__":
    main()
