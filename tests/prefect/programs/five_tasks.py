"""What a real client of Prefect does for `dev.py bench runs`: flows of five tasks, one after the other.

`five_tasks.py FLOWS` prints the seconds that they took, from the first begin to the last end; the
first flow warms up and is not counted. The flow is asynchronous: at the end of a synchronous one the client
sleeps for up to a second, until its thread of heartbeats looks whether it shall end, on any server.
"""

from __future__ import annotations

import asyncio
import sys
import time

from prefect import flow, task


@task
def double(number: int) -> int:
    return number * 2


@flow
async def five_tasks() -> int:
    return sum(double(number) for number in range(5))


async def main() -> None:
    await five_tasks()
    begin = time.perf_counter()
    for _ in range(int(sys.argv[1])):
        await five_tasks()
    print(time.perf_counter() - begin)


if __name__ == "__main__":
    asyncio.run(main())
