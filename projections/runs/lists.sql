-- Lists and counts of runs and records. {rows} is a view's table with the alias {table}, {views} the schema of
-- the views.

-- name: page
-- A page of a list: id, version and state of each row.
SELECT {table}.stream, {table}.version, {table}.state::text FROM {rows}
 WHERE {conditions} ORDER BY {order} OFFSET {offset} LIMIT {limit}

-- name: count
-- How many rows there are.
SELECT count(*) FROM {rows} WHERE {conditions}

-- name: run_is_kept
-- A run that was not deleted.
{table}.status <> 'deleted'

-- name: record_is_kept
-- A record of a category that was not deleted.
{table}.category = {category} AND {table}.status = 'present'

-- name: of_parent
-- A record that belongs to another.
{table}.parent = {value}

-- name: counts_by_state
-- How many rows there are of each type and name of state.
SELECT {table}.state_type, {table}.state_name, count(*) FROM {rows} WHERE {conditions} GROUP BY 1, 2 ORDER BY 1, 2

-- name: lateness
-- The mean number of seconds by which runs began, or ended, or are still expected, after they should have begun.
SELECT avg(greatest(0, coalesce(extract(epoch FROM coalesce({table}.start_time,
           CASE WHEN {table}.state_type NOT IN ('COMPLETED', 'FAILED', 'CANCELLED', 'CRASHED') THEN now() END)
           - {table}.expected_start_time), 0)))::float8
  FROM {rows} WHERE {conditions}

-- name: scheduled_for_pool
-- The scheduled runs that the workers of a pool may take now: of each queue in the order of time, the queues in
-- the order of their priority; not more than the limits of pool and queues leave free. A run that waits for its
-- retry in the process that runs it is not for others.
WITH pool AS (
    SELECT p.id, (p.fields ->> 'concurrency_limit')::bigint AS most
      FROM {views}.run_records p
     WHERE p.category = 'work_pool' AND p.id = %(pool)s AND p.status = 'present'
       AND NOT coalesce((p.fields ->> 'is_paused')::boolean, false)
), queues AS MATERIALIZED (
    SELECT q.id, (q.fields ->> 'priority')::bigint AS priority,
           coalesce((q.fields ->> 'is_paused')::boolean, false) AS paused,
           (q.fields ->> 'concurrency_limit')::bigint AS most,
           (SELECT count(*) FROM {views}.flow_runs f
             WHERE f.work_queue_id = q.id AND f.state_type IN ('RUNNING', 'PENDING') AND f.status <> 'deleted') AS busy
      FROM {views}.run_records q JOIN pool p ON q.parent = p.id
     WHERE q.category = 'work_queue' AND q.status = 'present'
)
SELECT f.stream, f.version, f.state::text
  FROM queues q
 CROSS JOIN LATERAL (
       SELECT f.* FROM {views}.flow_runs f
        WHERE f.work_queue_id = q.id AND f.state_type = 'SCHEDULED' AND f.status <> 'deleted'
          AND (f.state -> 'empirical_policy' ->> 'retry_type') IS DISTINCT FROM 'in_process'
          AND (%(before)s::timestamptz IS NULL OR f.next_scheduled_start_time <= %(before)s)
        ORDER BY f.next_scheduled_start_time, f.id
        LIMIT least(%(limit)s, CASE WHEN q.most IS NOT NULL THEN greatest(0, q.most - q.busy) END)) f
 WHERE NOT q.paused AND (%(queues)s::text[] IS NULL OR q.id = ANY (%(queues)s::text[]))
 ORDER BY q.priority, f.next_scheduled_start_time, f.id
 LIMIT least(%(limit)s, (
       SELECT CASE WHEN p.most IS NOT NULL THEN greatest(0, p.most - (SELECT sum(b.busy) FROM queues b)) END FROM pool p))

-- name: scheduled_of
-- The scheduled runs of a deployment.
SELECT f.id FROM {views}.flow_runs f
 WHERE f.deployment_id = %(deployment)s AND f.state_type = 'SCHEDULED' AND f.status <> 'deleted'

-- name: history
-- How many runs should have begun in each interval, by state; for how long they ran in all, and how late they
-- began in all, in seconds.
SELECT b.bucket, b.state_type, b.state_name, count(*), sum(b.ran)::float8, sum(greatest(0, b.late))::float8
  FROM (SELECT floor(extract(epoch FROM {table}.expected_start_time - {start}) / {seconds})::bigint AS bucket,
               {table}.state_type, {table}.state_name,
               coalesce(({table}.state ->> 'ran')::numeric, 0) / 1000000 + greatest(0, coalesce(extract(epoch FROM coalesce(
                   ({table}.state ->> 'ran_to')::timestamptz, CASE WHEN {table}.state_type = 'RUNNING' THEN now() END)
                   - ({table}.state ->> 'ran_from')::timestamptz), 0)) AS ran,
               extract(epoch FROM coalesce({table}.start_time,
                   CASE WHEN {table}.state_type NOT IN ('COMPLETED', 'FAILED', 'CANCELLED', 'CRASHED') THEN now() END)
                   - {table}.expected_start_time) AS late
          FROM {rows} WHERE {conditions} AND {table}.expected_start_time >= {start} AND {table}.expected_start_time < {ending}) b
 GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
