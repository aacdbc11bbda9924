-- The runs of builds: one row per run, its state. {build_runs} is the table.

-- name: tables
-- A column holds the field of that name of the run's state, `state` the whole. position: of its first fact,
-- the order of lists; version: of its last one. total: the stages in its order. running, ran, skipped,
-- failed: how many of them are under way, or over in this way. duration_ms: the sum over its stages.
CREATE TABLE {build_runs} (
    position    bigint  NOT NULL,
    started_at  timestamptz,
    ended_at    timestamptz,
    version     bigint  NOT NULL,
    duration_ms bigint  NOT NULL,
    total       bigint  NOT NULL,
    running     bigint  NOT NULL,
    ran         bigint  NOT NULL,
    skipped     bigint  NOT NULL,
    failed      bigint  NOT NULL,
    forced      boolean NOT NULL,
    status      text    COLLATE "C",
    stream      text    COLLATE "C" PRIMARY KEY,
    project     text    COLLATE "C" NOT NULL,
    run         text    COLLATE "C" NOT NULL,
    runner      text,
    state       jsonb   NOT NULL
) WITH (fillfactor = 70);

-- name: indexes
-- The runs of a project, the newest first; and by status.
CREATE INDEX ON {build_runs} (project, position);
CREATE INDEX ON {build_runs} (status, position);

-- name: project
-- The name of the project.
{ledger}.unescaped(split_part(s.stream, '/', 2));

-- name: run
-- The id of the run.
{ledger}.unescaped(split_part(s.stream, '/', 3));

-- name: forget
-- Remove the rows of streams.
DELETE FROM {build_runs} WHERE stream IN {streams};

-- name: reads
-- How far each run is, with the columns of `progress`: its stages are no streams of the run, so its own state
-- counts them. A skipped stage is done.
CREATE OR REPLACE VIEW {views}.build_progress AS
SELECT 'build_stage' AS category, r.stream AS parent, r.running + r.ran + r.skipped + r.failed AS present, r.running,
       r.ran + r.skipped AS done, r.failed, r.total,
       CASE WHEN r.total > 0 THEN (r.ran + r.skipped) * 100 / r.total END AS percent
  FROM {build_runs} r WHERE r.status <> 'dropped';
GRANT SELECT ON {views}.build_progress TO {reader}
