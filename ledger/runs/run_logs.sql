-- Logs of runs. {schema} is the ledger's schema.

-- name: write
-- Insert logs; a row for each.
INSERT INTO {schema}.run_logs (logged_at, recorded_at, id, flow_run_id, task_run_id, level, name, message)
SELECT u.logged_at, clock_timestamp(), gen_random_uuid(), u.flow_run_id, u.task_run_id, u.level, u.name, u.message
  FROM unnest(%(times)s::timestamptz[], %(flow_runs)s::uuid[], %(task_runs)s::uuid[], %(levels)s::integer[],
              %(names)s::text[], %(messages)s::text[]) u (logged_at, flow_run_id, task_run_id, level, name, message);

-- name: write_once
-- Insert logs with ids of their own, without those that are there; a row for each that is new.
INSERT INTO {schema}.run_logs (logged_at, recorded_at, id, flow_run_id, task_run_id, level, name, message)
SELECT u.logged_at, clock_timestamp(), u.id, u.flow_run_id, u.task_run_id, u.level, u.name, u.message
  FROM unnest(%(ids)s::uuid[], %(times)s::timestamptz[], %(flow_runs)s::uuid[], %(task_runs)s::uuid[], %(levels)s::integer[],
              %(names)s::text[], %(messages)s::text[]) u (id, logged_at, flow_run_id, task_run_id, level, name, message)
 WHERE NOT EXISTS (SELECT FROM {schema}.run_logs l WHERE l.logged_at = u.logged_at AND l.id = u.id)
RETURNING true;

-- name: read
-- A page of the logs that fulfil a condition, in an order.
SELECT id, recorded_at, name, level, flow_run_id, task_run_id, message, logged_at
  FROM {schema}.run_logs WHERE ({{condition}}) ORDER BY {{order}} LIMIT %(limit)s OFFSET %(offset)s;

-- name: arrived
-- The next logs that fulfil a condition and arrived since a time.
SELECT id, recorded_at, name, level, flow_run_id, task_run_id, message, logged_at
  FROM {schema}.run_logs WHERE ({{condition}}) AND recorded_at >= %(since)s ORDER BY recorded_at, number LIMIT %(limit)s;

-- name: count
-- How many logs fulfil a condition.
SELECT count(*) FROM {schema}.run_logs WHERE ({{condition}});

-- name: prune
-- Delete the oldest logs that arrived before a time, at most so many; a row for each.
DELETE FROM {schema}.run_logs WHERE number IN (
    SELECT number FROM {schema}.run_logs WHERE recorded_at < %(before)s ORDER BY recorded_at LIMIT %(limit)s
) RETURNING true;

-- name: delete_of_run
-- Delete the logs of a flow run.
DELETE FROM {schema}.run_logs WHERE flow_run_id = %(flow_run)s;

-- name: oldest_first
-- The order of time.
logged_at, number;

-- name: newest_first
-- The reverse order of time.
logged_at DESC, number DESC;

-- name: any_log
-- The condition that every log fulfils.
true;

-- name: level_ge
-- At least this level.
level >= %(level_ge)s;

-- name: level_le
-- At most this level.
level <= %(level_le)s;

-- name: timestamp_before
-- Logged at or before this time.
logged_at <= %(timestamp_before)s;

-- name: timestamp_after
-- Logged at or after this time.
logged_at >= %(timestamp_after)s;

-- name: flow_run_id_any
-- Of one of these flow runs.
flow_run_id = ANY (%(flow_run_id_any)s::uuid[]);

-- name: task_run_id_any
-- Of one of these task runs.
task_run_id = ANY (%(task_run_id_any)s::uuid[]);

-- name: task_run_id_is_null
-- Of no task run, or of some.
(task_run_id IS NULL) = %(task_run_id_is_null)s;

-- name: name_any
-- Of one of these loggers.
name = ANY (%(name_any)s::text[]);

-- name: text_query
-- With one of the words to find, all that are required, and none that is excluded, in the message or the logger's name.
(cardinality(%(found)s::text[]) = 0
    OR EXISTS (SELECT FROM unnest(%(found)s::text[]) t WHERE strpos(lower(message || ' ' || name), t) > 0))
AND NOT EXISTS (SELECT FROM unnest(%(required)s::text[]) t WHERE strpos(lower(message || ' ' || name), t) = 0)
AND NOT EXISTS (SELECT FROM unnest(%(excluded)s::text[]) t WHERE strpos(lower(message || ' ' || name), t) > 0);
