-- What crash detection looks for. {schema} is the ledger's schema, {views} that of its views.

-- name: signs_of_life
-- Whether anything of a flow run was recorded after a time: what it logged, or what became of its task runs.
SELECT true
 WHERE EXISTS (SELECT FROM {schema}.run_logs l WHERE l.flow_run_id = %(run)s::uuid AND l.recorded_at > %(since)s)
    OR EXISTS (SELECT FROM {views}.task_runs t WHERE t.flow_run_id = %(run)s::text AND t.updated > %(since)s);

-- name: with_heartbeats
-- Those of these flow runs from which a heartbeat ever came.
SELECT run FROM unnest(%(runs)s::text[]) u (run)
 WHERE EXISTS (SELECT FROM {schema}.events e
                WHERE e.stream = {schema}.stream_name('run_event', 'prefect.flow-run.' || run)
                  AND e.topic = 'run_event.received' AND e.data ->> 'event' = 'prefect.flow-run.heartbeat');
