-- Logs of flow runs and task runs.
-- oldest code: 1

-- What runs logged. It is no history: rows are written in bulk, never changed, and deleted after their time. number: the
-- order in which they arrived, which orders logs of the same time. logged_at: as the client claims; recorded_at: when
-- they arrived.
CREATE TABLE run_logs (
    number      bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    logged_at   timestamptz NOT NULL,
    recorded_at timestamptz NOT NULL,
    id          uuid        NOT NULL,
    flow_run_id uuid,
    task_run_id uuid,
    level       integer     NOT NULL,
    name        text        NOT NULL,
    message     text        NOT NULL
);
CREATE INDEX run_logs_flow_run ON run_logs (flow_run_id, logged_at, number) WHERE flow_run_id IS NOT NULL;
CREATE INDEX run_logs_task_run ON run_logs (task_run_id, logged_at, number) WHERE task_run_id IS NOT NULL;
CREATE INDEX run_logs_logged ON run_logs (logged_at, number);
CREATE INDEX run_logs_recorded ON run_logs (recorded_at);
