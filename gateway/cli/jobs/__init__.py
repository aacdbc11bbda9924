"""`pledger jobs`, `worker`, `reaper`, `dead`, `queues`, `operations`, `schedules`: jobs from a shell."""
