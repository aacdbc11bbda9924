-- Leases of runs. {schema} is the ledger's schema. A kept lease ran out before, and may be taken again.

-- name: put
-- Put a lease, or renew it; its data are replaced unless none are given.
INSERT INTO {schema}.run_leases AS l (taken_at, until, seconds, kind, key, data)
VALUES (clock_timestamp(), clock_timestamp() + %(seconds)s * interval '1 second', %(seconds)s, %(kind)s, %(key)s,
        coalesce(%(data)s::jsonb, '{{}}'))
ON CONFLICT (kind, key) DO UPDATE
   SET until = excluded.until, seconds = excluded.seconds, data = coalesce(%(data)s::jsonb, l.data)
RETURNING true;

-- name: beat
-- Put or renew the leases of runs from which heartbeats came; the keys of those whose interval is not known. data: when the
-- last one occurred by the client's clock, the state in which the run was then, and the longest time between two in this
-- state. Between two that came in different states another process may have begun.
INSERT INTO {schema}.run_leases AS l (taken_at, until, seconds, kind, key, data)
SELECT clock_timestamp(), clock_timestamp() + %(first)s * interval '1 second', %(first)s, %(kind)s, key,
       jsonb_build_object('occurred', occurred, 'state', (
           SELECT h.state -> 'state' ->> 'id' FROM {schema}.heads h
            WHERE h.stream = {schema}.stream_name('flow_run', key) AND h.state_version = h.version))
  FROM unnest(%(keys)s::text[], %(occurred)s::timestamptz[]) u (key, occurred) ORDER BY key
ON CONFLICT (kind, key) DO UPDATE
   SET (seconds, until, data) = (
       SELECT s.seconds, clock_timestamp() + s.seconds * interval '1 second',
              excluded.data || jsonb_build_object('occurred', greatest(b.occurred, b.before), 'longest', b.longest)
         FROM (SELECT n.occurred, n.before, CASE WHEN n.same THEN greatest(
                      CASE WHEN n.gap >= %(shortest)s THEN n.gap END, (l.data ->> 'longest')::double precision) END AS longest
                 FROM (SELECT o.occurred, o.before, extract(epoch FROM o.occurred - o.before)::double precision AS gap,
                              coalesce(excluded.data ->> 'state' = l.data ->> 'state', false) AS same
                         FROM (SELECT (excluded.data ->> 'occurred')::timestamptz AS occurred,
                                      (l.data ->> 'occurred')::timestamptz AS before) o) n) b,
              LATERAL (SELECT coalesce(%(intervals)s * b.longest, %(first)s) AS seconds) s)
RETURNING key, l.data ->> 'longest' IS NULL;

-- name: take
-- Take a lease that is not there or ran out; a row if it was taken. Of several at once, one takes it.
INSERT INTO {schema}.run_leases AS l (taken_at, until, seconds, kind, key, data)
VALUES (clock_timestamp(), clock_timestamp() + %(seconds)s * interval '1 second', %(seconds)s, %(kind)s, %(key)s,
        %(data)s::jsonb)
ON CONFLICT (kind, key) DO UPDATE
   SET taken_at = excluded.taken_at, until = excluded.until, seconds = excluded.seconds, data = excluded.data
 WHERE l.until < clock_timestamp()
RETURNING true;

-- name: mark
-- Renew the mark that something is there; taken_at: since when without a gap.
INSERT INTO {schema}.run_leases AS l (taken_at, until, seconds, kind, key, data)
VALUES (clock_timestamp(), clock_timestamp() + %(seconds)s * interval '1 second', %(seconds)s, %(kind)s, %(key)s, '{{}}')
ON CONFLICT (kind, key) DO UPDATE
   SET taken_at = CASE WHEN l.until < clock_timestamp() THEN clock_timestamp() ELSE l.taken_at END,
       until = greatest(l.until, excluded.until), seconds = excluded.seconds
RETURNING true;

-- name: put_if_absent
-- Put leases where there are none; the keys of those that were put.
INSERT INTO {schema}.run_leases (taken_at, until, seconds, kind, key, data)
SELECT clock_timestamp(), clock_timestamp() + %(seconds)s * interval '1 second', %(seconds)s, %(kind)s, key, data::jsonb
  FROM unnest(%(keys)s::text[], %(data)s::text[]) u (key, data)
ON CONFLICT (kind, key) DO NOTHING
RETURNING key;

-- name: renew
-- Renew a lease that is there; a row if it is.
UPDATE {schema}.run_leases
   SET until = clock_timestamp() + %(seconds)s * interval '1 second', seconds = %(seconds)s
 WHERE kind = %(kind)s AND key = %(key)s
RETURNING true;

-- name: release
-- Delete leases; a row for each.
DELETE FROM {schema}.run_leases WHERE kind = %(kind)s AND key = ANY (%(keys)s::text[]) RETURNING key;

-- name: take_expired
-- Take out leases that ran out, the oldest first; since: they could not be renewed before this time. One caller gets each; one that is renewed at this moment stays. Where
-- `kept` names a kind, the lease is kept under it for `keep` seconds, so that its holder can take it again.
WITH late AS MATERIALIZED (
    SELECT kind, key FROM {schema}.run_leases
     WHERE kind = %(kind)s AND until < clock_timestamp()
       AND coalesce(%(since)s::timestamptz + seconds * interval '1 second' < clock_timestamp(), true)
     ORDER BY until LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM {schema}.run_leases l USING late WHERE l.kind = late.kind AND l.key = late.key RETURNING l.*
), saved AS (
    INSERT INTO {schema}.run_leases (taken_at, until, seconds, kind, key, data)
    SELECT taken_at, clock_timestamp() + %(keep)s * interval '1 second', seconds, %(kept)s::text, key, data
      FROM gone WHERE %(kept)s::text IS NOT NULL
    ON CONFLICT (kind, key) DO UPDATE SET until = excluded.until, data = excluded.data
)
SELECT key, until, seconds, data, taken_at FROM gone ORDER BY until, key;

-- name: one
-- One lease, and whether it still lasts.
SELECT key, until, seconds, data, taken_at, until > clock_timestamp() AS lasts
  FROM {schema}.run_leases WHERE kind = %(kind)s AND key = %(key)s;

-- name: lasting
-- Those of these keys whose leases last.
SELECT key FROM {schema}.run_leases
 WHERE kind = %(kind)s AND key = ANY (%(keys)s::text[]) AND until > clock_timestamp();

-- name: all
-- All leases of a kind, ordered by when they run out.
SELECT key, until, seconds, data, taken_at FROM {schema}.run_leases WHERE kind = %(kind)s ORDER BY until, key;

-- name: clock
-- The time, by the clock that stamps events.
SELECT clock_timestamp();
