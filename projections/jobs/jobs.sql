-- Jobs for lists, and dead letters: what failed and was not discarded. {jobs} is the table of jobs.

-- name: tables
-- One row a job; batches are not here. A column holds the field of that name of the job's state, `state` the
-- whole. position: of its first fact, the order of lists. version: of its last one. due_at: a queued one is
-- not claimed before. parent: the id of the job whose child it is. dispatched: its operation is over, its set
-- goes on; split: likewise, also at the end. rounds: how often it handed out batches. Numbers that an
-- operation gives may be of any size.
CREATE TABLE {jobs} (
    position         bigint      NOT NULL,
    created_at       timestamptz NOT NULL,
    due_at           timestamptz,
    started_at       timestamptz,
    finished_at      timestamptz,
    version          bigint      NOT NULL,
    rounds           integer     NOT NULL,
    priority         integer     NOT NULL,
    attempt          integer     NOT NULL,
    dispatched       boolean     NOT NULL,
    split            boolean     NOT NULL,
    discarded        boolean     NOT NULL,
    deleted          boolean     NOT NULL,
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
    progress_total   numeric,
    state            jsonb       NOT NULL
) WITH (fillfactor = 60);

-- Where the present set of a job began, or was reopened: what of it failed before is over.
CREATE TABLE {job_sets} (
    position bigint NOT NULL,
    stream   text   COLLATE "C" PRIMARY KEY
);

-- Jobs and batches that failed and were neither discarded nor redriven, each with the reason. position,
-- version, at: of the fact. job: the id of the job; nr: the number of the batch, null for a job.
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
-- Newest first: of all, of those in a status, of an operation, below a parent (null: the top level); and by
-- tag.
CREATE INDEX ON {jobs} (position);
CREATE INDEX ON {jobs} (status, position);
CREATE INDEX ON {jobs} (operation, position);
CREATE INDEX ON {jobs} (parent, position);
CREATE INDEX ON {jobs} USING gin (tags) WHERE tags <> '{{}}';
CREATE INDEX ON {dead_letters} (position);
CREATE INDEX ON {dead_letters} (operation, position);
CREATE INDEX ON {dead_letters} (job);

-- name: due_at
-- Until when it waits, as the property of the state; null for what does not wait.
(s.state ->> 'offered_at')::timestamptz + (s.state ->> 'delay_seconds')::double precision * interval '1 second';

-- name: apply_sets
-- Where sets begin.
INSERT INTO {job_sets} (position, stream)
SELECT max(e.position), e.stream FROM {batch} e WHERE e.topic IN ('job.dispatching', 'job.redriven', 'job.reopened')
 GROUP BY e.stream
ON CONFLICT (stream) DO UPDATE SET position = excluded.position;

-- name: apply_dead
-- What failed, by the last fact of each. A fact of a batch contains its operation; that of a job is in the
-- row above.
WITH told AS MATERIALIZED (
    SELECT DISTINCT ON (e.stream) e.stream, e.position, e.version, e.recorded_at, e.data, split_part(e.topic, '.', 2) AS fact
      FROM {batch} e
     WHERE e.topic IN ('job.failed', 'job.lease_expired', 'job.redriven', 'job.reopened', 'job.discarded',
                       'batch.failed', 'batch.lease_expired', 'batch.redriven', 'batch.discarded')
     ORDER BY e.stream, e.version DESC
), repaired AS (
    DELETE FROM {dead_letters} d USING told t WHERE d.stream = t.stream AND t.fact IN ('redriven', 'reopened', 'discarded')
)
INSERT INTO {dead_letters} AS d (position, at, version, stream, job, nr, queue, operation, error_code, message)
SELECT t.position, t.recorded_at, t.version, t.stream, split_part(t.stream, '/', 2), nullif(split_part(t.stream, '/', 3), ''),
       coalesce(j.queue, t.data ->> 'queue', ''), coalesce(j.operation, t.data ->> 'operation', ''),
       CASE WHEN t.fact = 'lease_expired' THEN t.fact ELSE coalesce(t.data ->> 'error_code', '') END,
       CASE WHEN t.fact = 'lease_expired' THEN 'its worker vanished '
                 || ((t.data ->> 'prior_requeues')::numeric + 1) || ' times, at last '
                 || coalesce(nullif(t.data ->> 'worker', ''), 'an unknown one')
            ELSE left(coalesce(t.data ->> 'message', ''), 2000) END
  FROM told t LEFT JOIN LATERAL (SELECT * FROM {jobs} j WHERE j.stream = t.stream OFFSET 0) j ON true
 WHERE t.fact IN ('failed', 'lease_expired')
ON CONFLICT (stream) DO UPDATE
   SET position = excluded.position, at = excluded.at, version = excluded.version, queue = excluded.queue,
       operation = excluded.operation, error_code = excluded.error_code, message = excluded.message;

-- name: apply_superseded
-- Batches of a set that is over are no dead letters: their job began another one since, or was redriven or
-- reopened.
DELETE FROM {dead_letters} d USING {jobs} j LEFT JOIN {job_sets} s ON s.stream = j.stream
 WHERE j.stream = 'job/' || d.job AND d.nr IS NOT NULL
   AND d.job IN (SELECT split_part(e.stream, '/', 2) FROM {batch} e
                  WHERE e.topic IN ('job.dispatching', 'job.redriven', 'job.reopened', 'batch.failed', 'batch.lease_expired'))
   AND (d.position < s.position
        OR CASE WHEN d.nr ~ '^[0-9]{{1,9}}[.]' THEN split_part(d.nr, '.', 1)::integer ELSE 1 END < j.rounds);

-- name: forget_jobs
-- Remove the rows of streams.
WITH sets AS (DELETE FROM {job_sets} WHERE stream IN {streams}), dead AS (DELETE FROM {dead_letters} WHERE stream IN {streams})
DELETE FROM {jobs} WHERE stream IN {streams};

-- name: reads
-- How many jobs of each operation are in each status, by queue; and how many of them are not children.
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
