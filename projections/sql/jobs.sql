-- Questions about jobs, by name. {schema} is the ledger's schema, {views} that of its views. Those that end in _where are
-- conditions: only those that are asked for are put in a statement, so that the planner knows what it looks for.

-- name: jobs_page
-- A page of jobs, the newest first.
SELECT j.position, j.id, j.status, j.operation, j.queue, j.parent, j.created_at, j.due_at, j.started_at, j.finished_at,
       j.priority, j.attempt, j.worker, j.progress_current, j.progress_total, j.dispatched, j.discarded, j.error_code,
       j.error_message, j.description, j.findings, j.tags, j.dedup_key
  FROM {views}.jobs j WHERE {conditions} ORDER BY j.position DESC LIMIT %(limit)s

-- name: jobs_any_where
-- No condition.
true

-- name: jobs_before_where
-- Older than the last of the page before.
j.position < %(after)s

-- name: jobs_status_where
-- In a status.
j.status = %(status)s

-- name: jobs_operation_where
-- Of an operation.
j.operation = %(operation)s

-- name: jobs_queue_where
-- In a queue.
j.queue = %(queue)s

-- name: jobs_parent_where
-- Children of a job.
j.parent = %(parent)s

-- name: jobs_top_where
-- Nobody's children.
j.parent IS NULL

-- name: jobs_tag_where
-- With a tag; the second half is the condition of the index.
(j.tags @> ARRAY[%(tag)s::text] AND j.tags <> '{{}}')

-- name: jobs_counts
-- How many jobs of each operation are in each status, queue by queue.
SELECT queue, operation, status, jobs, top_level, dispatched, oldest_due FROM {views}.job_counts ORDER BY 1, 2, 3;

-- name: dead_page
-- A page of dead letters, the newest first.
SELECT j.position, j.stream, j.job, j.nr, j.queue, j.operation, j.error_code, j.message, j.at, j.version
  FROM {views}.dead_letters j WHERE {conditions} ORDER BY j.position DESC LIMIT %(limit)s

-- name: dead_error_code_where
-- With an error code.
j.error_code = %(error_code)s

-- name: dead_job_where
-- Of a job and its batches.
j.job = %(job)s

-- name: sets_done
-- How many batches of some jobs were completed, and how many of their child jobs succeeded, in the present life of each.
SELECT s.parent, coalesce(p.done, 0) + (
           SELECT count(DISTINCT c.child) FROM {views}.job_children c JOIN {views}.jobs j ON j.stream = 'job/' || c.child
            WHERE c.stream = s.parent AND j.status = 'succeeded' AND c.version > coalesce(
                  (SELECT max(r.version) FROM {views}.job_children r WHERE r.stream = s.parent AND r.child = ''), 0))
  FROM unnest(%(parents)s::text[]) s (parent)
  LEFT JOIN {views}.progress p ON p.category = 'batch' AND p.parent = s.parent;

-- name: batches_page
-- Names of the batches of a job, from their heads, by name.
SELECT h.stream FROM {schema}.heads h
 WHERE h.stream COLLATE "C" > %(after)s AND h.stream COLLATE "C" < %(end)s AND (%(status)s::text IS NULL OR h.status = %(status)s)
 ORDER BY h.stream COLLATE "C" LIMIT %(limit)s;

-- name: many_batches
-- Whether a job has more batches than a number.
SELECT count(*) > %(many)s::bigint
  FROM (SELECT FROM {schema}.heads h WHERE h.stream COLLATE "C" > %(start)s AND h.stream COLLATE "C" < %(end)s
         LIMIT %(many)s::bigint + 1) t;

-- name: timeline_of_streams
-- The next events of a job and of its batches, in order: all of them are looked at.
SELECT e.position, e.stream, e.version, e.topic, e.schema, e.data::text, e.raw, e.meta::text, e.recorded_at
  FROM {schema}.events e
 WHERE (e.stream = %(job)s OR (e.stream COLLATE "C" > %(start)s AND e.stream COLLATE "C" < %(end)s))
   AND e.position > %(after)s AND e.position <= %(upto)s
 ORDER BY e.position LIMIT %(limit)s;

-- name: timeline_of_log
-- The same of some events of the log, whose streams are looked at one by one: where a job has very many events, and most
-- of what is recorded meanwhile is of it.
SELECT e.position, e.stream, e.version, e.topic, e.schema, e.data::text, e.raw, e.meta::text, e.recorded_at
  FROM (SELECT * FROM {schema}.events WHERE position > %(after)s AND position <= %(upto)s ORDER BY position OFFSET 0) e
 WHERE e.stream = %(job)s OR (e.stream COLLATE "C" > %(start)s AND e.stream COLLATE "C" < %(end)s)
 ORDER BY e.position LIMIT %(limit)s;

-- name: work_waiting
-- What waits for a claim, jobs and batches, by queue and operation, how much of it is due, and for how many seconds the
-- first of it is due.
SELECT queue, operation, count(*), count(*) FILTER (WHERE due_at <= now()),
       coalesce(extract(epoch FROM now() - min(due_at) FILTER (WHERE due_at <= now())), 0)::double precision
  FROM {views}.work WHERE ready GROUP BY queue, operation ORDER BY 1, 2;

-- name: jobs_active
-- How many jobs are queued, running or dispatched, by queue and operation.
SELECT queue, operation, CASE WHEN dispatched THEN 'dispatched' ELSE status END, count(*)
  FROM {views}.jobs WHERE status IN ('queued', 'running') GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;

-- name: dead_counts
-- How many dead letters there are, by queue and operation.
SELECT queue, operation, CASE WHEN nr IS NULL THEN 'job' ELSE 'batch' END, count(*)
  FROM {views}.dead_letters GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;

-- name: leases_by_operation
-- How many leases hold, and how many were not renewed in time.
SELECT operation, count(*) FILTER (WHERE until > now()), count(*) FILTER (WHERE until <= now())
  FROM {schema}.leases GROUP BY operation ORDER BY 1;

-- name: workers_seen
-- The workers that say that they are there.
SELECT worker, slots, busy, draining, done, extract(epoch FROM now() - seen_at)::double precision
  FROM {schema}.workers ORDER BY worker;
