-- The leases of a claim. {schema} is the ledger's schema, {views} that of its views.

-- name: take_leases
-- Put a lease on each piece of work that the view `work` nominates, for a worker; and remove its own leases that have
-- ended. token: of the claim that is to follow, the next version of the stream. One caller at a time: see
-- nominate_work. ahead: so many more, but only of operations without limits, because a lease counts against
-- them even if no claim follows.
-- A lease that another worker put meanwhile stays. The work is counted against the rates of operations.
WITH found AS MATERIALIZED (
    SELECT *, row_number() OVER (ORDER BY priority DESC, position) AS place
      FROM {views}.nominate_work(%(queues)s::text[], %(operations)s::text[], %(limit)s::integer + %(ahead)s::integer)
), unlimited AS MATERIALIZED (
    SELECT o.operation FROM (SELECT DISTINCT f.operation, f.now FROM found f WHERE f.place > %(limit)s::integer) o
     WHERE {views}.room_of(o.operation, o.now) IS NULL
), nominated AS MATERIALIZED (
    SELECT f.* FROM found f
     WHERE f.place <= %(limit)s::integer OR f.operation IN (SELECT u.operation FROM unlimited u)
), taken AS (
    INSERT INTO {schema}.leases AS x (token, taken_at, until, stream, worker, operation)
    SELECT n.version + 1, n.now, n.now + %(seconds)s::double precision * interval '1 second', n.stream, %(worker)s::text, n.operation
      FROM nominated n
    ON CONFLICT (stream) DO UPDATE
       SET token = excluded.token, taken_at = excluded.taken_at, until = excluded.until, worker = excluded.worker,
           operation = excluded.operation
     WHERE x.until <= excluded.taken_at
    RETURNING x.stream, x.token
), released AS (
    DELETE FROM {schema}.leases l USING unnest(%(released)s::text[], %(tokens)s::bigint[]) u (stream, token)
     WHERE l.stream = u.stream AND l.token = u.token
), spent AS (
    INSERT INTO {schema}.rates AS r (at, left_over, operation)
    SELECT n.now, greatest(0, n.bucket - count(*)), n.operation
      FROM taken t JOIN nominated n ON n.stream = t.stream WHERE n.bucket IS NOT NULL GROUP BY n.now, n.bucket, n.operation
    ON CONFLICT (operation) DO UPDATE SET at = excluded.at, left_over = excluded.left_over
)
SELECT t.stream, t.token, n.payload, n.parent_status, n.version, n.state_version, n.state_schema, n.state, n.now
  FROM taken t JOIN nominated n ON n.stream = t.stream ORDER BY n.priority DESC, n.position;
