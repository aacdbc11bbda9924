-- What a reaper looks for, from the view `work`. {schema} is the ledger's schema, {views} that of its views.

-- name: put_grace_leases
-- Put a lease on each valid claim that has none because the table was lost: its worker must renew it in that time. The
-- fact of the claim names the worker. A dispatched job has no token and is left out.
INSERT INTO {schema}.leases (token, taken_at, until, stream, worker, operation)
SELECT h.token, clock_timestamp(), clock_timestamp() + %(seconds)s * interval '1 second', h.stream,
       coalesce(e.data ->> 'worker', ''), w.operation
  FROM {views}.work w
  JOIN {schema}.heads h ON h.stream = w.stream AND h.token IS NOT NULL AND h.status IN ('running', 'writing')
  LEFT JOIN {schema}.events e ON e.stream = h.stream AND e.version = h.token
 WHERE NOT w.ready AND NOT EXISTS (SELECT FROM {schema}.leases l WHERE l.stream = w.stream)
 ORDER BY w.position LIMIT %(limit)s
ON CONFLICT (stream) DO NOTHING
RETURNING stream;

-- name: stalled_work
-- Work that has long been due and that nobody has claimed: not paused, not at the limits of its operation, not offered
-- again too often, and not only waiting its turn: no worker that could take it took other work meanwhile, and not all of
-- them are full.
WITH lines AS MATERIALIZED (
    SELECT l.queue, l.operation,
           count(k.worker) > 0 AND (bool_and(k.busy >= k.slots OR k.draining) OR bool_or(EXISTS (
               SELECT FROM {schema}.leases x WHERE x.worker = k.worker
                  AND x.taken_at > clock_timestamp() - %(seconds)s * interval '1 second'))) AS moves
      FROM {views}.work_lines l
      LEFT JOIN {schema}.workers k ON (k.queues IS NULL OR l.queue = ANY (k.queues)) AND l.operation = ANY (k.operations)
                                  AND k.seen_at > clock_timestamp() - interval '1 minute'
     WHERE NOT EXISTS (SELECT FROM {views}.work_queues q
                        WHERE q.paused AND q.stream = {schema}.stream_name('queue', l.queue))
       AND NOT EXISTS (SELECT FROM {views}.work_limits m LEFT JOIN {schema}.rates r ON r.operation = l.operation
                        WHERE m.stream = {schema}.stream_name('operation', l.operation)
                          AND (m.concurrency <= (SELECT count(*) FROM {schema}.leases x
                                                  WHERE x.operation = l.operation AND x.until > clock_timestamp())
                               OR r.left_over + m.rate * extract(epoch FROM clock_timestamp() - r.at) / m.seconds < 1))
     GROUP BY l.queue, l.operation
)
SELECT w.stream
  FROM lines i
  JOIN {views}.work w ON w.queue = i.queue AND w.operation = i.operation
  JOIN {schema}.heads h ON h.stream = w.stream AND h.status IN ('queued', 'computed')
 WHERE NOT i.moves AND w.ready AND w.due_at < clock_timestamp() - %(seconds)s * interval '1 second'
   AND {schema}.whole_number(h.state, 'stalls') < %(max_stalls)s
   AND NOT EXISTS (SELECT FROM {schema}.leases x WHERE x.stream = w.stream AND x.until > clock_timestamp())
 ORDER BY w.due_at LIMIT %(limit)s;
