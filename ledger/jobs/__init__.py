"""
Jobs: submitted, claimed by workers under leases, split into batches, run to one end, recovered.

    jobs = Jobs(log)
    job = jobs.submit("ping", {"n": 1}, queue="quick")
    jobs.wait(job)

A job is a stream (`job/ID`), and so is each of its batches (`batch/ID/NR`). Workers (`consumers.jobs`) claim
waiting work; the token of the claim guards each of their writes.
"""

from ..domain.domain import Domain
from .batch import Batch, BatchStatus, OpenBatch
from .batches import Batches, Done
from .cron import times
from .job import BATCHES, Job, OpenJob, Status
from .jobs import Jobs
from .queue import Limits, Queue
from .schedule import CatchUp, Schedule
from .schedules import Schedules
from .unique import dedup_key

DOMAIN = Domain(
    "jobs", __name__, sets=[BATCHES], views=["projections.jobs.work", "projections.jobs.job_list"]
)

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
    "Queue",
    "Schedule",
    "Schedules",
    "Status",
    "dedup_key",
    "times",
]
