-- Counts of jobs for metrics. {schema} is the ledger's schema, {views} that of its views.

-- name: work_waiting
-- Jobs and batches that wait for a claim, by queue and operation; how many of them are due, and for how many
-- seconds the first one has been due.
SELECT queue, operation, count(*), count(*) FILTER (WHERE due_at <= now()),
       coalesce(extract(epoch FROM now() - min(due_at) FILTER (WHERE due_at <= now())), 0)::double precision
  FROM {views}.work WHERE ready GROUP BY queue, operation ORDER BY 1, 2;

-- name: jobs_active
-- How many jobs are queued, running or dispatched, by queue and operation.
SELECT queue, operation, CASE WHEN dispatched THEN 'dispatched' ELSE status END, count(*)
  FROM {views}.jobs WHERE status IN ('queued', 'running') GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;

-- name: leases_by_operation
-- How many leases are valid, and how many ran out.
SELECT operation, count(*) FILTER (WHERE until > now()), count(*) FILTER (WHERE until <= now())
  FROM {schema}.leases GROUP BY operation ORDER BY 1;
