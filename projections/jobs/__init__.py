"""
Jobs as lists, pages and dashboards show them: the view `jobs`, questions to it, and what happened to a job.

    jobs = JobQueries(log)
    for job in jobs.list(status="failed", limit=20):
        print(job.id, job.operation, job.error_code)
    for event in timeline(log, job.id):
        print(event.at, event.event, event.message)
"""

from .figures import job_figures
from .listed import JobList
from .queries import Counted, Dead, JobQueries, Listed
from .timeline import Entry, timeline

__all__ = ["Counted", "Dead", "Entry", "JobList", "JobQueries", "Listed", "job_figures", "timeline"]
