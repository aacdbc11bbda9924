-- Statements of leases and workers, by name. {schema} is the ledger's.

-- name: renew_leases
-- Say that this worker still works on these; a lease that was lost is made anew, unless another has the stream. What
-- each stream is at comes back: another token or status there means that the claim is over.
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
-- Take out leases that are over.
DELETE FROM {schema}.leases l USING unnest(%(streams)s::text[], %(tokens)s::bigint[]) u (stream, token)
 WHERE l.stream = u.stream AND l.token = u.token RETURNING l.stream;

-- name: expired_leases
-- Leases of which nothing was heard in time, with what their streams are at; the oldest first.
SELECT l.stream, l.token, l.worker, l.until, h.token, h.status
  FROM {schema}.leases l LEFT JOIN {schema}.heads h ON h.stream = l.stream
 WHERE l.until < clock_timestamp() ORDER BY l.until LIMIT %(limit)s;

-- name: take_expired_leases
-- Take out leases that were not renewed in time, the oldest first, with what their streams are at. Each is given to one
-- caller; one that is renewed in this moment stays.
WITH late AS MATERIALIZED (
    SELECT stream FROM {schema}.leases WHERE until < clock_timestamp() ORDER BY until LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM {schema}.leases l USING late WHERE l.stream = late.stream RETURNING l.*
)
SELECT l.stream, l.token, l.worker, l.until, h.token, h.status
  FROM gone l LEFT JOIN {schema}.heads h ON h.stream = l.stream ORDER BY l.until, l.stream;

-- name: leases
-- All leases, those that end first, first.
SELECT l.stream, l.token, l.worker, l.operation, l.taken_at, l.until, h.token IS NOT DISTINCT FROM l.token AS holds
  FROM {schema}.leases l LEFT JOIN {schema}.heads h ON h.stream = l.stream ORDER BY l.until, l.stream;

-- name: greet
-- A worker says that it is there.
INSERT INTO {schema}.workers AS w (started_at, seen_at, done, pid, slots, busy, draining, worker, host, queues, operations)
VALUES (clock_timestamp(), clock_timestamp(), %(done)s, %(pid)s, %(slots)s, %(busy)s, %(draining)s, %(worker)s, %(host)s,
        %(queues)s, %(operations)s)
ON CONFLICT (worker) DO UPDATE
   SET seen_at = excluded.seen_at, done = excluded.done, busy = excluded.busy, draining = excluded.draining
RETURNING worker;

-- name: farewell
-- A worker leaves.
DELETE FROM {schema}.workers WHERE worker = %(worker)s RETURNING worker;

-- name: forget_workers
-- Take out workers of which nothing was heard for so many seconds.
DELETE FROM {schema}.workers WHERE seen_at < clock_timestamp() - %(seconds)s * interval '1 second' RETURNING worker;

-- name: workers
-- The workers that say that they are there, and for how many seconds nothing was heard of each.
SELECT worker, host, pid, queues, operations, slots, busy, draining, done, started_at, seen_at,
       extract(epoch FROM clock_timestamp() - seen_at)::double precision AS silent
  FROM {schema}.workers ORDER BY worker;

-- name: elect
-- Stand for what one is enough for; true for who has it now, for so many seconds more.
INSERT INTO {schema}.elections AS e (until, name, worker)
VALUES (clock_timestamp() + %(seconds)s * interval '1 second', %(what)s, %(worker)s)
ON CONFLICT (name) DO UPDATE SET until = excluded.until, worker = excluded.worker
 WHERE e.worker = excluded.worker OR e.until < clock_timestamp()
RETURNING true;

-- name: resign
-- Leave it to another.
DELETE FROM {schema}.elections WHERE name = %(what)s AND worker = %(worker)s RETURNING true;
