-- The stages of builds: one row per stage, its state. {build_stages} is the table.

-- name: tables
-- A column holds the field of that name of the stage's state, `state` the whole. position: of its first fact;
-- version: of its last one. run, runner, since: of the present claim. input_hash, how, outs, completed_in (a
-- run), completed_at: of the last completion. reason, duration_ms: of the last completion or failure.
CREATE TABLE {build_stages} (
    position     bigint NOT NULL,
    since        timestamptz,
    completed_at timestamptz,
    version      bigint NOT NULL,
    duration_ms  bigint NOT NULL,
    status       text   COLLATE "C",
    stream       text   COLLATE "C" PRIMARY KEY,
    project      text   COLLATE "C" NOT NULL,
    stage        text   COLLATE "C" NOT NULL,
    how          text   COLLATE "C",
    input_hash   text   COLLATE "C",
    run          text   COLLATE "C",
    runner       text,
    completed_in text   COLLATE "C",
    reason       text   NOT NULL,
    state        jsonb  NOT NULL
) WITH (fillfactor = 70);

-- name: indexes
-- The stages of a project; and those that are under way.
CREATE INDEX ON {build_stages} (project, stage);
CREATE INDEX ON {build_stages} (since) WHERE since IS NOT NULL;

-- name: project
-- The name of the project.
{ledger}.unescaped(split_part(s.stream, '/', 2));

-- name: stage
-- The name of the stage.
{ledger}.unescaped(split_part(s.stream, '/', 3));

-- name: forget
-- Remove the rows of streams.
DELETE FROM {build_stages} WHERE stream IN {streams}
