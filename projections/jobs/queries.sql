-- Queries of jobs, by name. {schema} is the ledger's schema, {views} that of its views. Names that end in
-- _where are conditions: a statement contains only those that the caller needs, so that the planner can use
-- them.

-- name: jobs_page
-- A page of jobs, newest first.
SELECT j.position, j.id, j.status, j.operation, j.queue, j.parent, j.created_at, j.due_at, j.started_at, j.finished_at,
       j.priority, j.attempt, j.worker, j.progress_current, j.progress_total, j.dispatched, j.split, j.discarded, j.error_code,
       j.error_message, j.description, j.findings, j.tags, j.dedup_key
  FROM {views}.jobs j WHERE {conditions} ORDER BY j.position DESC LIMIT %(limit)s

-- name: jobs_kept_where
-- Not deleted.
NOT j.deleted

-- name: jobs_newer_where
-- Newer than a position.
j.position > %(newer)s

-- name: jobs_since_where
-- Submitted after a time.
j.created_at > %(since)s

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
-- Without a parent.
j.parent IS NULL

-- name: jobs_tag_where
-- With a tag; the second half is the condition of the index.
(j.tags @> ARRAY[%(tag)s::text] AND j.tags <> '{{}}')

-- name: jobs_counts
-- How many jobs of each operation are in each status, by queue.
SELECT queue, operation, status, jobs, top_level, dispatched, oldest_due FROM {views}.job_counts ORDER BY 1, 2, 3;

-- name: dead_page
-- A page of dead letters, newest first.
SELECT j.position, j.stream, j.job, j.nr, j.queue, j.operation, j.error_code, j.message, j.at, j.version
  FROM {views}.dead_letters j WHERE {conditions} ORDER BY j.position DESC LIMIT %(limit)s

-- name: dead_any_where
-- No condition.
true

-- name: dead_error_code_where
-- With an error code.
j.error_code = %(error_code)s

-- name: dead_job_where
-- Of a job and its batches.
j.job = %(job)s

-- name: sets_done
-- How many batches of some jobs were completed, and how many of their child jobs succeeded, in the present
-- life of each.
SELECT s.parent, coalesce(p.done, 0) + (
           SELECT count(*) FROM {views}.jobs j CROSS JOIN LATERAL jsonb_array_elements_text(j.state -> 'children') c (child)
             JOIN {views}.jobs k ON k.stream = 'job/' || c.child
            WHERE j.stream = s.parent AND k.status = 'succeeded')
  FROM unnest(%(parents)s::text[]) s (parent)
  LEFT JOIN {views}.progress p ON p.category = 'batch' AND p.parent = s.parent;

-- name: heads_done
-- The same from the heads of batches, if nothing follows the view `progress`.
SELECT j.stream, (
           SELECT count(*) FROM {schema}.heads h
            WHERE h.stream >= p.prefix COLLATE "C" AND h.stream < p.prefix || U&'\+10FFFF' COLLATE "C"
              AND h.status = 'completed' AND strpos(substr(h.stream, length(p.prefix) + 1), '.') = 0) + (
           SELECT count(*) FROM jsonb_array_elements_text(j.state -> 'children') c (child)
             JOIN {views}.jobs k ON k.stream = 'job/' || c.child
            WHERE k.status = 'succeeded')
  FROM {views}.jobs j
 CROSS JOIN LATERAL (SELECT 'batch/' || j.id || '/' || CASE WHEN j.rounds > 1 THEN j.rounds || '.' ELSE '' END AS prefix) p
 WHERE j.stream = ANY (%(parents)s::text[]);

-- name: batches_page
-- Names of the batches of a job, from their heads, by name.
SELECT h.stream FROM {schema}.heads h
 WHERE h.stream COLLATE "C" > %(after)s AND h.stream COLLATE "C" < %(end)s AND (%(status)s::text IS NULL OR h.status = %(status)s)
 ORDER BY h.stream COLLATE "C" LIMIT %(limit)s;
