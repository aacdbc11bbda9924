"""
Jobs for lists, pages and dashboards: the view `jobs`, queries of it, and the timeline of a job.

    jobs = JobQueries(log)
    for job in jobs.list(status="failed", limit=20):
        print(job.id, job.operation, job.error_code)
    for event in timeline(log, job.id):
        print(event.at, event.event, event.message)
"""

from .queries import Counted, Dead, JobQueries, Listed
from .timeline import Entry, comments, newest, timeline

__all__ = [
    "Counted", "Dead", "Entry", "JobQueries", "Listed", "comments", "newest", "timeline",
]  # fmt: skip
