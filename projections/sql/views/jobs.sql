-- Jobs as lists show them, and dead letters: what failed and was not discarded. {jobs} is the table of jobs.

-- name: tables
-- One row a job, the fold of its stream; batches are not here. position: of its first fact, the order of lists. version: of
-- the last fact that is in the row. due_at: a queued one is not claimed before. parent: the id of the job whose child it
-- is. dispatched: its operation is over, its set goes on. Numbers that an operation says may be of any size.
CREATE TABLE {jobs} (
    position         bigint      NOT NULL,
    created_at       timestamptz NOT NULL,
    due_at           timestamptz,
    started_at       timestamptz,
    finished_at      timestamptz,
    version          bigint      NOT NULL,
    priority         integer     NOT NULL,
    attempt          integer     NOT NULL,
    dispatched       boolean     NOT NULL,
    discarded        boolean     NOT NULL,
    status           text        COLLATE "C" NOT NULL,
    stream           text        COLLATE "C" PRIMARY KEY,
    id               text        COLLATE "C" NOT NULL,
    queue            text        COLLATE "C" NOT NULL,
    operation        text        COLLATE "C" NOT NULL,
    parent           text        COLLATE "C",
    worker           text,
    dedup_key        text,
    error_code       text        COLLATE "C",
    error_message    text,
    description      text,
    findings         text,
    tags             text[]      COLLATE "C" NOT NULL,
    progress_current numeric,
    progress_total   numeric
) WITH (fillfactor = 60);

-- Which child jobs a job said it has, fact by fact. Where child is empty it was redriven, and those before count no more.
CREATE TABLE {job_children} (
    version bigint NOT NULL,
    stream  text   COLLATE "C" NOT NULL,
    child   text   COLLATE "C" NOT NULL,
    PRIMARY KEY (stream, version, child)
);

-- Jobs and batches that failed and were neither discarded nor redriven, each with the reason. position, version, at: of
-- the fact that says so. job: the id of the job; nr: the number of the batch, null for a job.
CREATE TABLE {dead_letters} (
    position   bigint      NOT NULL,
    at         timestamptz NOT NULL,
    version    bigint      NOT NULL,
    stream     text        COLLATE "C" PRIMARY KEY,
    job        text        COLLATE "C" NOT NULL,
    nr         text        COLLATE "C",
    queue      text        COLLATE "C" NOT NULL,
    operation  text        COLLATE "C" NOT NULL,
    error_code text        COLLATE "C" NOT NULL,
    message    text        NOT NULL
);

-- name: indexes
-- Newest first: of all, of those in a status, of an operation, below a parent (null: the top level); and by tag.
CREATE INDEX ON {jobs} (position);
CREATE INDEX ON {jobs} (status, position);
CREATE INDEX ON {jobs} (operation, position);
CREATE INDEX ON {jobs} (parent, position);
CREATE INDEX ON {jobs} USING gin (tags) WHERE tags <> '{{}}';
CREATE INDEX ON {dead_letters} (position);
CREATE INDEX ON {dead_letters} (operation, position);
CREATE INDEX ON {dead_letters} (job);

-- name: apply_children
-- The child jobs that jobs say they have.
INSERT INTO {job_children} (version, stream, child)
SELECT e.version, e.stream, CASE WHEN e.topic = 'job.redriven' THEN '' ELSE e.data ->> 'child' END
  FROM {batch} e WHERE e.topic IN ('job.child_added', 'job.redriven')
 UNION
SELECT e.version, e.stream, c.child
  FROM {batch} e CROSS JOIN LATERAL jsonb_array_elements_text(e.data -> 'children') c (child)
 WHERE e.topic = 'job.dispatched'
ON CONFLICT DO NOTHING;

-- name: apply_jobs
-- Fold the facts of each job onto its row: of each field the last fact that tells it. A stream whose first fact is not
-- that it was created is no job.
WITH facts AS MATERIALIZED (
    SELECT e.stream, e.position, e.version, e.recorded_at, e.data, substr(e.topic, 5) AS fact,
           CASE substr(e.topic, 5)
                WHEN 'started' THEN 'running' WHEN 'succeeded' THEN 'succeeded' WHEN 'cancelled' THEN 'cancelled'
                WHEN 'failed' THEN 'failed' WHEN 'lease_expired' THEN 'failed'
                WHEN 'created' THEN 'queued' WHEN 'redriven' THEN 'queued' WHEN 'attempt_failed' THEN 'queued'
                WHEN 'retry_later' THEN 'queued' WHEN 'released' THEN 'queued' WHEN 'lease_expired_requeue' THEN 'queued'
           END AS status
      FROM {batch} e
     WHERE starts_with(e.topic, 'job.') AND e.topic <> 'job.child_added' AND (e.topic <> 'job.created' OR e.version = 1)
), said AS (
    SELECT f.stream, max(f.version) AS version,
           max(f.position) FILTER (WHERE f.fact = 'created') AS position,
           max(f.recorded_at) FILTER (WHERE f.fact = 'created') AS created_at,
           max(f.data ->> 'parent') FILTER (WHERE f.fact = 'created') AS parent,
           max(f.data ->> 'dedup_key') FILTER (WHERE f.fact = 'created') AS dedup_key,
           (array_agg(f.status ORDER BY f.version DESC) FILTER (WHERE f.status IS NOT NULL))[1] AS status,
           (array_agg(CASE WHEN f.status = 'queued' THEN coalesce((f.data ->> 'run_at')::timestamptz, f.recorded_at)
                                + coalesce((f.data ->> 'delay_seconds')::double precision, 0) * interval '1 second' END
                      ORDER BY f.version DESC) FILTER (WHERE f.status IS NOT NULL))[1] AS due_at,
           (array_agg(f.fact = 'dispatched' ORDER BY f.version DESC)
                FILTER (WHERE f.status IS NOT NULL OR f.fact = 'dispatched'))[1] AS dispatched,
           bool_or(f.status IN ('queued', 'running')) AS claims,
           (array_agg(CASE WHEN f.fact = 'started' THEN f.recorded_at END ORDER BY f.version DESC)
                FILTER (WHERE f.status IN ('queued', 'running')))[1] AS started_at,
           (array_agg(CASE WHEN f.fact = 'started' THEN f.data ->> 'worker' END ORDER BY f.version DESC)
                FILTER (WHERE f.status IN ('queued', 'running')))[1] AS worker,
           (array_agg(CASE WHEN f.fact = 'started' THEN (f.data ->> 'attempt')::integer ELSE 0 END ORDER BY f.version DESC)
                FILTER (WHERE f.fact IN ('created', 'started', 'redriven')))[1] AS attempt,
           bool_or(f.fact = 'redriven' OR f.status IN ('succeeded', 'failed', 'cancelled')) AS ends,
           (array_agg(CASE WHEN f.fact <> 'redriven' THEN f.recorded_at END ORDER BY f.version DESC)
                FILTER (WHERE f.fact = 'redriven' OR f.status IN ('succeeded', 'failed', 'cancelled')))[1] AS finished_at,
           bool_or(f.fact IN ('succeeded', 'failed', 'lease_expired', 'attempt_failed')) AS judged,
           (array_agg(CASE WHEN f.fact = 'lease_expired' THEN f.fact ELSE f.data ->> 'error_code' END ORDER BY f.version DESC)
                FILTER (WHERE f.fact IN ('succeeded', 'failed', 'lease_expired', 'attempt_failed')))[1] AS error_code,
           (array_agg(CASE f.fact
                      WHEN 'lease_expired' THEN 'nothing was heard of its worker, ' || ((f.data ->> 'prior_requeues')::numeric + 1)
                           || ' times: ' || coalesce(nullif(f.data ->> 'worker', ''), 'unknown')
                      WHEN 'succeeded' THEN NULL ELSE left(f.data ->> 'message', 2000) END ORDER BY f.version DESC)
                FILTER (WHERE f.fact IN ('succeeded', 'failed', 'lease_expired', 'attempt_failed')))[1] AS error_message,
           (array_agg(f.fact = 'discarded' ORDER BY f.version DESC)
                FILTER (WHERE f.fact IN ('discarded', 'redriven')))[1] AS discarded,
           (array_agg(f.data ->> 'queue' ORDER BY f.version DESC) FILTER (WHERE f.fact IN ('created', 'redriven')))[1] AS queue,
           (array_agg(f.data ->> 'operation' ORDER BY f.version DESC)
                FILTER (WHERE f.fact IN ('created', 'redriven')))[1] AS operation,
           (array_agg((f.data ->> 'priority')::integer ORDER BY f.version DESC)
                FILTER (WHERE f.fact IN ('created', 'redriven')))[1] AS priority,
           (array_agg(f.data ->> 'description' ORDER BY f.version DESC)
                FILTER (WHERE f.fact IN ('created', 'described') AND f.data ->> 'description' IS NOT NULL))[1] AS description,
           (array_agg(f.data ->> 'findings' ORDER BY f.version DESC)
                FILTER (WHERE f.fact = 'described' AND f.data ->> 'findings' IS NOT NULL))[1] AS findings,
           (array_agg(f.data -> 'tags' ORDER BY f.version DESC)
                FILTER (WHERE f.fact IN ('created', 'described') AND jsonb_typeof(f.data -> 'tags') = 'array'))[1] AS tags,
           (array_agg(CASE WHEN f.fact = 'dispatched' THEN 0 ELSE (f.data ->> 'progress_current')::numeric END
                      ORDER BY f.version DESC)
                FILTER (WHERE f.fact = 'dispatched' OR f.fact IN ('reported', 'succeeded')
                              AND f.data ->> 'progress_current' IS NOT NULL))[1] AS progress_current,
           (array_agg(CASE WHEN f.fact = 'dispatched' THEN (f.data ->> 'batches')::numeric
                                + (SELECT count(DISTINCT c.child) FROM {job_children} c
                                    WHERE c.stream = f.stream AND c.version <= f.version AND c.version > coalesce(
                                          (SELECT max(r.version) FROM {job_children} r WHERE r.stream = f.stream
                                              AND r.version < f.version AND r.child = ''), 0))
                           ELSE (f.data ->> 'progress_total')::numeric END ORDER BY f.version DESC)
                FILTER (WHERE f.fact = 'dispatched' OR f.fact IN ('reported', 'succeeded')
                              AND f.data ->> 'progress_total' IS NOT NULL))[1] AS progress_total
      FROM facts f GROUP BY f.stream
)
INSERT INTO {jobs} AS j (
    position, created_at, due_at, started_at, finished_at, version, priority, attempt, dispatched, discarded, status, stream,
    id, queue, operation, parent, worker, dedup_key, error_code, error_message, description, findings, tags,
    progress_current, progress_total)
SELECT coalesce(b.position, s.position), coalesce(b.created_at, s.created_at),
       CASE WHEN s.status IS NULL THEN b.due_at ELSE s.due_at END,
       CASE WHEN s.claims THEN s.started_at ELSE b.started_at END,
       CASE WHEN s.ends THEN s.finished_at ELSE b.finished_at END,
       s.version, coalesce(s.priority, b.priority, 0), coalesce(s.attempt, b.attempt, 0),
       coalesce(s.dispatched, b.dispatched), coalesce(s.discarded, b.discarded, false), coalesce(s.status, b.status),
       s.stream, split_part(s.stream, '/', 2), coalesce(s.queue, b.queue), coalesce(s.operation, b.operation),
       coalesce(b.parent, s.parent), CASE WHEN s.claims THEN s.worker ELSE b.worker END,
       coalesce(b.dedup_key, s.dedup_key),
       CASE WHEN s.judged THEN s.error_code ELSE b.error_code END,
       CASE WHEN s.judged THEN s.error_message ELSE b.error_message END,
       coalesce(s.description, b.description), coalesce(s.findings, b.findings),
       CASE WHEN s.tags IS NULL THEN coalesce(b.tags, '{{}}') ELSE ARRAY(SELECT jsonb_array_elements_text(s.tags)) END,
       coalesce(s.progress_current, b.progress_current), coalesce(s.progress_total, b.progress_total)
  FROM said s LEFT JOIN LATERAL (SELECT * FROM {jobs} j WHERE j.stream = s.stream OFFSET 0) b ON true
 WHERE b.stream IS NOT NULL OR s.position IS NOT NULL
ON CONFLICT (stream) DO UPDATE
   SET due_at = excluded.due_at, started_at = excluded.started_at, finished_at = excluded.finished_at,
       version = excluded.version, priority = excluded.priority, attempt = excluded.attempt,
       dispatched = excluded.dispatched, discarded = excluded.discarded, status = excluded.status, queue = excluded.queue,
       operation = excluded.operation, worker = excluded.worker, error_code = excluded.error_code,
       error_message = excluded.error_message, description = excluded.description, findings = excluded.findings,
       tags = excluded.tags, progress_current = excluded.progress_current, progress_total = excluded.progress_total;

-- name: apply_dead
-- What failed, as the last fact of each says. A fact of a batch says itself what it was; of a job the row above says it.
WITH told AS MATERIALIZED (
    SELECT DISTINCT ON (e.stream) e.stream, e.position, e.version, e.recorded_at, e.data, split_part(e.topic, '.', 2) AS fact
      FROM {batch} e
     WHERE e.topic IN ('job.failed', 'job.lease_expired', 'job.redriven', 'job.discarded',
                       'batch.failed', 'batch.lease_expired', 'batch.redriven', 'batch.discarded')
     ORDER BY e.stream, e.version DESC
), mended AS (
    DELETE FROM {dead_letters} d USING told t WHERE d.stream = t.stream AND t.fact IN ('redriven', 'discarded')
)
INSERT INTO {dead_letters} AS d (position, at, version, stream, job, nr, queue, operation, error_code, message)
SELECT t.position, t.recorded_at, t.version, t.stream, split_part(t.stream, '/', 2), nullif(split_part(t.stream, '/', 3), ''),
       coalesce(j.queue, t.data ->> 'queue', ''), coalesce(j.operation, t.data ->> 'operation', ''),
       CASE WHEN t.fact = 'lease_expired' THEN t.fact ELSE coalesce(t.data ->> 'error_code', '') END,
       CASE WHEN t.fact = 'lease_expired' THEN 'nothing was heard of its worker, '
                 || ((t.data ->> 'prior_requeues')::numeric + 1) || ' times: ' || coalesce(nullif(t.data ->> 'worker', ''), 'unknown')
            ELSE left(coalesce(t.data ->> 'message', ''), 2000) END
  FROM told t LEFT JOIN LATERAL (SELECT * FROM {jobs} j WHERE j.stream = t.stream OFFSET 0) j ON true
 WHERE t.fact IN ('failed', 'lease_expired')
ON CONFLICT (stream) DO UPDATE
   SET position = excluded.position, at = excluded.at, version = excluded.version, queue = excluded.queue,
       operation = excluded.operation, error_code = excluded.error_code, message = excluded.message;

-- name: forget_jobs
-- Take streams out.
WITH children AS (DELETE FROM {job_children} WHERE stream IN {streams}), dead AS (DELETE FROM {dead_letters} WHERE stream IN {streams})
DELETE FROM {jobs} WHERE stream IN {streams};

-- name: reads
-- How many jobs of each operation are in each status, queue by queue; and how many of them are not children.
CREATE OR REPLACE VIEW {views}.job_counts AS
SELECT queue, operation, status, count(*) AS jobs, count(*) FILTER (WHERE parent IS NULL) AS top_level,
       count(*) FILTER (WHERE dispatched) AS dispatched, min(due_at) AS oldest_due
  FROM {jobs} GROUP BY queue, operation, status;

-- A job with all below it, itself first: its child jobs, theirs, and so on; depth: from 0.
CREATE OR REPLACE FUNCTION {views}.job_tree(p_id text)
RETURNS TABLE (depth integer, id text, status text, operation text, queue text, parent text, "position" bigint)
LANGUAGE sql STABLE AS $$
    WITH RECURSIVE below AS (
        SELECT 0 AS depth, j.* FROM {jobs} j WHERE j.stream = 'job/' || p_id
        UNION ALL
        SELECT b.depth + 1, c.* FROM below b CROSS JOIN LATERAL (SELECT * FROM {jobs} j WHERE j.parent = b.id OFFSET 0) c
    ) CYCLE id SET again USING path
    SELECT b.depth, b.id, b.status, b.operation, b.queue, b.parent, b.position FROM below b WHERE NOT b.again
     ORDER BY b.depth, b.position
$$;
GRANT SELECT ON {views}.job_counts TO {reader};
GRANT EXECUTE ON FUNCTION {views}.job_tree TO {reader};
