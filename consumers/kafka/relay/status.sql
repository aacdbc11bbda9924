-- Where a relay stands, seen from the ledger. {schema} is the ledger's schema.

-- name: lag
-- The last position; how many events come after a position, up to a limit; for how many seconds the first is recorded.
WITH behind AS (
    SELECT position, recorded_at FROM {schema}.events WHERE position > %(position)s ORDER BY position LIMIT %(limit)s
)
SELECT (SELECT coalesce(max(position), 0) FROM {schema}.events),
       (SELECT count(*) FROM behind),
       (SELECT extract(epoch FROM clock_timestamp() - recorded_at)::double precision
          FROM behind ORDER BY position LIMIT 1);

-- name: elected
-- Who is elected for a name, if anyone is.
SELECT worker FROM {schema}.elections WHERE name = %(name)s AND until > clock_timestamp();
