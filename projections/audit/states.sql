-- states.py: {schema} is the ledger's schema, {views} that of its views.

-- name: end_of_recorded
-- When the last event at or before a position was recorded, and the time of the server's clock.
SELECT (SELECT recorded_at FROM {schema}.events WHERE position <= %(position)s ORDER BY position DESC LIMIT 1),
       clock_timestamp();

-- name: last_claimed
-- The latest time that an event at or before a position claims.
SELECT max({schema}.claimed_time(meta))
  FROM {schema}.events WHERE position <= %(position)s;

-- name: claims_after
-- Whether an event at or before a position claims a later time.
SELECT EXISTS (SELECT FROM {schema}.events
                WHERE position <= %(position)s AND {schema}.claimed_time(meta) > %(at)s);

-- name: stays
-- The common part of states_at, stays_of, dwell and counts_at: how long each stream was in each status, as of
-- a moment. `led` are the events that lead to a status, in the order of the axis; each of them that leads to
-- another status than the one before begins a stay; the last has no end. On the recorded axis `claimed` is
-- nothing for all of them, and the version alone orders. Statuses of topics that were not announced, but that
-- the caller has, are added.
WITH led AS (
    SELECT e.stream, e.version, e.position, coalesce(m.status, e.data->>m.field) AS status, e.recorded_at,
           CASE WHEN %(claimed)s THEN {schema}.claimed_time(e.meta) END AS claimed
      FROM {schema}.events e
      JOIN (SELECT topic, status, field FROM {schema}.topic_statuses
             UNION ALL
            SELECT * FROM unnest(%(topics)s::text[], %(statuses)s::text[], %(fields)s::text[]) k (topic, status, field)
             WHERE NOT EXISTS (SELECT FROM {schema}.topic_statuses d WHERE d.topic = k.topic COLLATE "C")) m ON m.topic = e.topic
     WHERE e.position <= %(position)s AND e.stream >= %(low)s AND e.stream < %(high)s
       AND (e.stream = %(low)s OR e.stream >= %(below)s)
), turned AS (
    SELECT *, lag(status) OVER (PARTITION BY stream ORDER BY claimed, version) AS before
      FROM led
     WHERE status IS NOT NULL AND (NOT %(claimed)s OR claimed <= %(until)s)
), stays AS (
    SELECT stream, status, version, position, claimed, coalesce(claimed, recorded_at) AS since,
           lead(coalesce(claimed, recorded_at)) OVER (PARTITION BY stream ORDER BY claimed, version) AS until
      FROM turned WHERE before IS DISTINCT FROM status
), timed AS (
    SELECT *, greatest(extract(epoch FROM coalesce(until, %(until)s) - since), 0) AS seconds FROM stays
)

-- name: states_at
-- Every stream that was in a status at the moment: which, since when, and the event that led to it.
SELECT stream, status, since, version, position FROM stays
 WHERE until IS NULL AND (%(status)s::text IS NULL OR status = %(status)s)
 ORDER BY stream LIMIT %(limit)s;

-- name: counts_at
-- How many streams were in each status at the moment, by category.
SELECT split_part(stream, '/', 1), status, count(*) FROM stays
 WHERE until IS NULL AND (%(status)s::text IS NULL OR status = %(status)s)
 GROUP BY 1, 2 ORDER BY 1, 2;

-- name: stays_of
-- Each stay of each stream, in order, with its seconds; an open one has no end and counts up to the moment.
SELECT stream, status, since, until, version, position, seconds::float8 FROM timed
 ORDER BY stream, claimed, version;

-- name: dwell
-- How long streams stay in each status, by category or by stream: number of stays, how many are open, and
-- seconds: median, 95th percentile, longest, and total.
SELECT CASE WHEN %(each)s THEN stream ELSE split_part(stream, '/', 1) END, status,
       count(*), count(*) FILTER (WHERE until IS NULL),
       percentile_cont(0.5) WITHIN GROUP (ORDER BY seconds), percentile_cont(0.95) WITHIN GROUP (ORDER BY seconds),
       max(seconds)::float8, sum(seconds)::float8
  FROM timed GROUP BY 1, 2 ORDER BY 1, 2;
