-- What a graph of a flow run shows. {views} is the schema of the views.

-- name: nodes
-- Its task runs by when they began, a subflow in the place of the task run that stands for it; those that have not even
-- an expected begin are left out.
SELECT CASE WHEN s.id IS NULL THEN 'task-run' ELSE 'flow-run' END, coalesce(s.id, t.id), coalesce(f.name || ' / ' || s.name, t.name),
       coalesce(s.state_type, t.state_type), b.began,
       coalesce(s.end_time, t.end_time, CASE WHEN t.state_type = 'COMPLETED' THEN t.expected_start_time END) AS ended,
       t.state -> 'task_inputs'
  FROM {views}.task_runs t
  LEFT JOIN {views}.flow_runs s ON s.parent_task_run_id = t.id AND s.status <> 'deleted'
  LEFT JOIN {views}.run_records f ON f.category = 'flow' AND f.id = s.flow_id
 CROSS JOIN LATERAL (SELECT coalesce(s.start_time, s.expected_start_time, t.start_time, t.expected_start_time) AS began) b
 WHERE t.flow_run_id = %(run)s AND t.status <> 'deleted' AND b.began IS NOT NULL
 ORDER BY b.began, ended, 2 LIMIT %(limit)s;

-- name: artifacts
-- Its artifacts but results, the oldest first; the data of what shows progress.
SELECT a.id, a.created, a.fields ->> 'key', a.fields ->> 'type', a.fields ->> 'task_run_id',
       CASE WHEN a.fields ->> 'type' = 'progress' THEN a.fields -> 'data' END,
       a.fields ->> 'key' IS NULL OR EXISTS (
           SELECT FROM {views}.run_records c
            WHERE c.category = 'artifact_collection' AND c.name = a.name AND c.fields ->> 'latest_id' = a.id AND c.status = 'present')
  FROM {views}.run_records a
 WHERE a.category = 'artifact' AND a.parent = %(run)s AND a.status = 'present' AND a.fields ->> 'type' <> 'result'
 ORDER BY a.created, a.id LIMIT %(limit)s;
