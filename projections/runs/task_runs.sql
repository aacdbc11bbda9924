-- Task runs: one row per task run, its state. {task_runs} is the table.

-- name: tables
-- A column holds the field of that name of the run's state, `state` the whole. position: of its first fact;
-- version: of its last one. status: the type of its state in lower case, or deleted. flow_run_id: none for a
-- background task.
CREATE TABLE {task_runs} (
    position                  bigint  NOT NULL,
    version                   bigint  NOT NULL,
    created                   timestamptz,
    updated                   timestamptz,
    expected_start_time       timestamptz,
    next_scheduled_start_time timestamptz,
    start_time                timestamptz,
    end_time                  timestamptz,
    state_timestamp           timestamptz,
    run_count                 bigint,
    status                    text    COLLATE "C",
    state_type                text    COLLATE "C",
    state_name                text    COLLATE "C",
    stream                    text    COLLATE "C" PRIMARY KEY,
    id                        text    COLLATE "C" NOT NULL,
    flow_run_id               text    COLLATE "C",
    name                      text    COLLATE "C",
    task_key                  text    COLLATE "C",
    dynamic_key               text    COLLATE "C",
    tags                      text[],
    state                     jsonb   NOT NULL
) WITH (fillfactor = 70);

-- name: indexes
-- By id; those of a flow run; those in a state; by time; those with a tag.
CREATE UNIQUE INDEX ON {task_runs} (id);
CREATE INDEX ON {task_runs} (flow_run_id) WHERE flow_run_id IS NOT NULL;
CREATE INDEX ON {task_runs} (state_type, state_name);
CREATE INDEX ON {task_runs} (expected_start_time DESC NULLS LAST, id DESC);
CREATE INDEX ON {task_runs} (end_time DESC NULLS LAST, id DESC);
CREATE INDEX ON {task_runs} USING gin (tags) WHERE tags <> '{{}}';

-- name: forget
-- Remove the rows of streams.
DELETE FROM {task_runs} WHERE stream IN {streams}
