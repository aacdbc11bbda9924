-- Leases, workers and elections. {schema} is the ledger's schema.

-- name: renew_leases
-- Renew the leases of a worker; a lease whose row was lost is created again, unless another worker has the stream. Returns
-- token and status of each head: another token means that the claim is over.
WITH mine AS (
    SELECT * FROM unnest(%(streams)s::text[], %(tokens)s::bigint[], %(operations)s::text[]) u (stream, token, operation)
), renewed AS (
    INSERT INTO {schema}.leases AS l (token, taken_at, until, stream, worker, operation)
    SELECT m.token, clock_timestamp(), clock_timestamp() + %(seconds)s * interval '1 second', m.stream, %(worker)s, m.operation
      FROM mine m JOIN {schema}.heads h ON h.stream = m.stream AND h.token = m.token
    ON CONFLICT (stream) DO UPDATE SET until = excluded.until WHERE l.token = excluded.token AND l.worker = excluded.worker
)
SELECT m.stream, m.token, h.token, h.status FROM mine m LEFT JOIN {schema}.heads h ON h.stream = m.stream;

-- name: release_leases
-- Delete leases that are over.
DELETE FROM {schema}.leases l USING unnest(%(streams)s::text[], %(tokens)s::bigint[]) u (stream, token)
 WHERE l.stream = u.stream AND l.token = u.token RETURNING l.stream;

-- name: take_expired_leases
-- Delete leases that ran out, the oldest first, with token and status of the heads. One caller gets each; one that is
-- renewed at this moment stays.
WITH late AS MATERIALIZED (
    SELECT stream FROM {schema}.leases WHERE until < clock_timestamp() ORDER BY until LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM {schema}.leases l USING late WHERE l.stream = late.stream RETURNING l.*
)
SELECT l.stream, l.token, l.worker, l.until, h.token, h.status
  FROM gone l LEFT JOIN {schema}.heads h ON h.stream = l.stream ORDER BY l.until, l.stream;

-- name: leases
-- All leases, ordered by when they run out.
SELECT l.stream, l.token, l.worker, l.operation, l.taken_at, l.until, h.token IS NOT DISTINCT FROM l.token AS holds
  FROM {schema}.leases l LEFT JOIN {schema}.heads h ON h.stream = l.stream ORDER BY l.until, l.stream;

-- name: register_worker
-- Add or update a worker.
INSERT INTO {schema}.workers AS w (started_at, seen_at, done, pid, slots, busy, draining, worker, host, queues, operations)
VALUES (clock_timestamp(), clock_timestamp(), %(done)s, %(pid)s, %(slots)s, %(busy)s, %(draining)s, %(worker)s, %(host)s,
        %(queues)s, %(operations)s)
ON CONFLICT (worker) DO UPDATE
   SET seen_at = excluded.seen_at, done = excluded.done, busy = excluded.busy, draining = excluded.draining,
       operations = excluded.operations
RETURNING worker;

-- name: unregister_worker
-- Remove a worker that ends.
DELETE FROM {schema}.workers WHERE worker = %(worker)s RETURNING worker;

-- name: remove_silent_workers
-- Remove workers that have been silent for the given seconds.
DELETE FROM {schema}.workers WHERE seen_at < clock_timestamp() - %(seconds)s * interval '1 second' RETURNING worker;

-- name: workers
-- The registered workers, and for how many seconds each has been silent.
SELECT worker, host, pid, queues, operations, slots, busy, draining, done, started_at, seen_at,
       extract(epoch FROM clock_timestamp() - seen_at)::double precision AS silent
  FROM {schema}.workers ORDER BY worker;

-- name: elect
-- Elect a worker for a name, or extend its election; a row for the elected one.
INSERT INTO {schema}.elections AS e (until, name, worker)
VALUES (clock_timestamp() + %(seconds)s * interval '1 second', %(name)s, %(worker)s)
ON CONFLICT (name) DO UPDATE SET until = excluded.until, worker = excluded.worker
 WHERE e.worker = excluded.worker OR e.until < clock_timestamp()
RETURNING true;

-- name: resign
-- End an election.
DELETE FROM {schema}.elections WHERE name = %(name)s AND worker = %(worker)s RETURNING true;
