-- Leases of stages of builds, in the table of all leases. {schema} is the ledger's schema.

-- name: take_stage_lease
-- Put a lease on a stage for a runner: if nobody has one, it has run out, or its holder is known to be gone. One row: who
-- has the lease now, its token, and for how many seconds more. Where the stage is claimed but has no lease, because the
-- table was lost, its runner first gets one, and with it the time to renew it.
WITH claimed AS (
    SELECT h.token, coalesce(e.data ->> 'runner', '') AS runner
      FROM {schema}.heads h LEFT JOIN {schema}.events e ON e.stream = h.stream AND e.version = h.token
     WHERE h.stream = %(stream)s AND h.token IS NOT NULL
), wanted AS (
    SELECT %(token)s::bigint AS token, %(worker)s::text AS worker
     WHERE NOT EXISTS (SELECT FROM claimed c WHERE c.runner <> ALL (%(gone)s::text[]))
        OR EXISTS (SELECT FROM {schema}.leases l WHERE l.stream = %(stream)s)
    UNION ALL
    SELECT c.token, c.runner FROM claimed c
     WHERE c.runner <> ALL (%(gone)s::text[]) AND NOT EXISTS (SELECT FROM {schema}.leases l WHERE l.stream = %(stream)s)
), taken AS (
    INSERT INTO {schema}.leases AS l (token, taken_at, until, stream, worker, operation)
    SELECT w.token, clock_timestamp(), clock_timestamp() + %(seconds)s * interval '1 second', %(stream)s, w.worker, 'build_stage'
      FROM wanted w
    ON CONFLICT (stream) DO UPDATE
       SET token = excluded.token, taken_at = excluded.taken_at, until = excluded.until, worker = excluded.worker,
           operation = excluded.operation
     WHERE l.until <= clock_timestamp() OR l.worker = ANY (%(gone)s::text[])
    RETURNING l.worker, l.token, l.until
)
SELECT t.worker, t.token, extract(epoch FROM t.until - clock_timestamp())::double precision FROM taken t
UNION ALL
SELECT l.worker, l.token, extract(epoch FROM l.until - clock_timestamp())::double precision
  FROM {schema}.leases l WHERE l.stream = %(stream)s AND NOT EXISTS (SELECT FROM taken);

-- name: claim_of
-- The token of the claim of a stage, and when its lease runs out, in seconds; one row.
SELECT h.token, extract(epoch FROM l.until - clock_timestamp())::double precision
  FROM (VALUES (%(stream)s)) s (stream)
  LEFT JOIN {schema}.heads h ON h.stream = s.stream
  LEFT JOIN {schema}.leases l ON l.stream = s.stream;
