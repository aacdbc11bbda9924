"""
Jobs: submitted, claimed by workers under leases, split in batches, run to one end, rescued.

    jobs = Jobs(log)
    job = jobs.submit("ping", {"n": 1}, queue="quick")
    jobs.wait(job)

A job is a stream (`job/ID`), and so is each of its batches (`batch/ID/NR`). Workers (`consumers.jobs`) claim
what waits; every write of theirs is guarded by the token of the claim.
"""

from .batch import Batch, BatchStatus, OpenBatch
from .batches import Batches, Done
from .job import Job, OpenJob, Status
from .jobs import Jobs
from .queue import Limits, OpenOperation, OpenQueue, Queue
from .schedule import CatchUp, OpenSchedule, Schedule
from .schedules import Schedules
from .unique import OpenKey, dedup_key
from .work import OpenWork, Work

__all__ = [
    "Batch",
    "BatchStatus",
    "Batches",
    "CatchUp",
    "Done",
    "Job",
    "Jobs",
    "Limits",
    "OpenBatch",
    "OpenJob",
    "OpenKey",
    "OpenOperation",
    "OpenQueue",
    "OpenSchedule",
    "OpenWork",
    "Queue",
    "Schedule",
    "Schedules",
    "Status",
    "Work",
    "dedup_key",
]
