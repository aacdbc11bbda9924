-- Flow runs: one row per flow run, its state. {flow_runs} is the table.

-- name: tables
-- A column holds the field of that name of the run's state, `state` the whole. position: of its first fact;
-- version: of its last one. status: the type of its state in lower case, or deleted.
CREATE TABLE {flow_runs} (
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
    auto_scheduled            boolean,
    status                    text    COLLATE "C",
    state_type                text    COLLATE "C",
    state_name                text    COLLATE "C",
    stream                    text    COLLATE "C" PRIMARY KEY,
    id                        text    COLLATE "C" NOT NULL,
    flow_id                   text    COLLATE "C",
    deployment_id             text    COLLATE "C",
    work_queue_id             text    COLLATE "C",
    work_queue_name           text    COLLATE "C",
    parent_task_run_id        text    COLLATE "C",
    name                      text    COLLATE "C",
    flow_version              text    COLLATE "C",
    idempotency_key           text    COLLATE "C",
    tags                      text[],
    created_by                jsonb,
    state                     jsonb   NOT NULL
) WITH (fillfactor = 70);

-- name: indexes
-- By id; the runs of a flow, a deployment, a queue, a parent; those in a state; by time; those with a tag; and
-- the scheduled ones, for workers and deployments.
CREATE UNIQUE INDEX ON {flow_runs} (id);
CREATE INDEX ON {flow_runs} (flow_id);
CREATE INDEX ON {flow_runs} (deployment_id) WHERE deployment_id IS NOT NULL;
CREATE INDEX ON {flow_runs} (work_queue_id, state_type) WHERE work_queue_id IS NOT NULL;
CREATE INDEX ON {flow_runs} (parent_task_run_id) WHERE parent_task_run_id IS NOT NULL;
CREATE INDEX ON {flow_runs} (state_type, state_name);
CREATE INDEX ON {flow_runs} (coalesce(start_time, expected_start_time) DESC NULLS LAST, id DESC);
CREATE INDEX ON {flow_runs} (expected_start_time DESC NULLS LAST, id DESC);
CREATE INDEX ON {flow_runs} (end_time DESC NULLS LAST, id DESC);
CREATE INDEX ON {flow_runs} (name);
CREATE INDEX ON {flow_runs} (idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX ON {flow_runs} (next_scheduled_start_time, id) WHERE state_type = 'SCHEDULED';
CREATE INDEX ON {flow_runs} USING gin (tags) WHERE tags <> '{{}}';

-- name: forget
-- Remove the rows of streams.
DELETE FROM {flow_runs} WHERE stream IN {streams}
