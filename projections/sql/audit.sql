-- Questions about the past, by name. Each is one statement over the events themselves: no view has a part in it.
-- {schema} is the ledger's schema.

-- name: first_recorded_after
-- The least position of what was recorded after a time; nothing where nothing was.
SELECT min(position) FROM {schema}.events WHERE recorded_at > %(at)s;

-- name: end_of_recorded
-- When the last event at or before a position was recorded, and what the server's clock says.
SELECT (SELECT recorded_at FROM {schema}.events WHERE position <= %(position)s ORDER BY position DESC LIMIT 1),
       clock_timestamp();

-- name: last_claimed
-- The latest time that an event at or before a position claims.
SELECT max(CASE WHEN meta->>'claimed_at' ~ '^\d{{4}}-\d\d-\d\d' THEN (meta->>'claimed_at')::timestamptz END)
  FROM {schema}.events WHERE position <= %(position)s;

-- name: claims_after
-- Whether an event at or before a position claims a later time.
SELECT EXISTS (SELECT FROM {schema}.events
                WHERE position <= %(position)s AND CASE WHEN meta->>'claimed_at' ~ '^\d{{4}}-\d\d-\d\d'
                                                        THEN (meta->>'claimed_at')::timestamptz > %(at)s END);

-- name: stays
-- What states_at, stays_of, dwell and counts_at begin with: how long each stream was in each status, as of a moment.
-- `led` are the events that lead to a status, in the order of the axis; each of them that leads to another status than
-- the one before begins a stay; the last has no end. On the recorded axis `claimed` is nothing for all of them, and the
-- version alone orders. What the ledger was not told of topics, but the asker knows, is added to `moves`.
WITH led AS (
    SELECT e.stream, e.version, e.position, coalesce(m.status, e.data->>m.field) AS status, e.recorded_at,
           CASE WHEN %(claimed)s AND e.meta->>'claimed_at' ~ '^\d{{4}}-\d\d-\d\d'
                THEN (e.meta->>'claimed_at')::timestamptz END AS claimed
      FROM {schema}.events e
      JOIN (SELECT topic, status, field FROM {schema}.moves
             UNION ALL
            SELECT * FROM unnest(%(topics)s::text[], %(statuses)s::text[], %(fields)s::text[]) k (topic, status, field)
             WHERE NOT EXISTS (SELECT FROM {schema}.moves d WHERE d.topic = k.topic COLLATE "C")) m ON m.topic = e.topic
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
-- Every stream that was in a status at the moment: which, since when, and the event with which it came to it.
SELECT stream, status, since, version, position FROM stays
 WHERE until IS NULL AND (%(status)s::text IS NULL OR status = %(status)s)
 ORDER BY stream LIMIT %(limit)s;

-- name: counts_at
-- How many streams were in each status at the moment, by category.
SELECT split_part(stream, '/', 1), status, count(*) FROM stays
 WHERE until IS NULL AND (%(status)s::text IS NULL OR status = %(status)s)
 GROUP BY 1, 2 ORDER BY 1, 2;

-- name: stays_of
-- Each stay of each stream, in order, an open one without an end; its seconds, which count up to the moment.
SELECT stream, status, since, until, version, position, seconds::float8 FROM timed
 ORDER BY stream, claimed, version;

-- name: dwell
-- How long streams stay in each status, by category or by stream: number of stays, of which open, and seconds:
-- median, 95th of a hundred, longest, and all together.
SELECT CASE WHEN %(each)s THEN stream ELSE split_part(stream, '/', 1) END, status,
       count(*), count(*) FILTER (WHERE until IS NULL),
       percentile_cont(0.5) WITHIN GROUP (ORDER BY seconds), percentile_cont(0.95) WITHIN GROUP (ORDER BY seconds),
       max(seconds)::float8, sum(seconds)::float8
  FROM timed GROUP BY 1, 2 ORDER BY 1, 2;

-- name: chain
-- An event and what caused it, and what caused that, the event first. A circle ends where it closes.
WITH RECURSIVE chain (position) AS (
    SELECT %(position)s::bigint
    UNION
    SELECT CASE WHEN jsonb_typeof(e.meta->'causation') = 'string'
                THEN (SELECT c.first_position FROM {schema}.commands c WHERE c.command = e.meta->>'causation')
                WHEN e.meta->>'causation' ~ '^\d{{1,18}}$' THEN (e.meta->>'causation')::bigint END
      FROM chain JOIN {schema}.events e USING (position)
)
SELECT position FROM chain WHERE position IS NOT NULL LIMIT %(limit)s;

-- name: append_of
-- The first position of the append that a command id stands for.
SELECT first_position FROM {schema}.commands WHERE command = %(command)s;

-- name: linked
-- Every event between two positions that names a cause, or carries a correlation: the position of that cause, and
-- whether it carries it. Neither has an index: the events between the two positions are read once, in their order.
SELECT e.position,
       CASE WHEN jsonb_typeof(e.meta->'causation') = 'string'
            THEN (SELECT c.first_position FROM {schema}.commands c WHERE c.command = e.meta->>'causation')
            WHEN e.meta->>'causation' ~ '^\d{{1,18}}$' THEN (e.meta->>'causation')::bigint END,
       coalesce(e.meta->>'correlation' = %(correlation)s, false)
  FROM {schema}.events e
 WHERE e.position BETWEEN %(first)s AND %(last)s
   AND (e.meta ? 'causation' OR e.meta->>'correlation' = %(correlation)s)
 ORDER BY e.position;

-- name: caused_events
-- Events by their positions, each with the position of what caused it, nothing where that is not recorded.
SELECT CASE WHEN jsonb_typeof(e.meta->'causation') = 'string'
            THEN (SELECT c.first_position FROM {schema}.commands c WHERE c.command = e.meta->>'causation')
            WHEN e.meta->>'causation' ~ '^\d{{1,18}}$'
            THEN (SELECT c.position FROM {schema}.events c WHERE c.position = (e.meta->>'causation')::bigint) END,
       e.position, e.stream, e.version, e.topic, e.schema, e.data::text, e.raw, e.meta::text, e.recorded_at
  FROM {schema}.events e WHERE e.position = ANY (%(positions)s::bigint[]) ORDER BY e.position;

-- name: position_near
-- About the last position at or before a time, by halving: as exact as the clock was steady, which is enough to bound
-- a search.
WITH RECURSIVE halves (low, high) AS (
    SELECT -1::bigint, coalesce(max(position), 0) FROM {schema}.events
    UNION ALL
    SELECT CASE WHEN h.later THEN h.low ELSE h.middle END, CASE WHEN h.later THEN h.middle ELSE h.high END
      FROM (SELECT low, high, (low + high) / 2 AS middle,
                   (SELECT recorded_at FROM {schema}.events WHERE position > (low + high) / 2
                     ORDER BY position LIMIT 1) > %(at)s AS later
              FROM halves WHERE high - low > 1) h
)
SELECT high FROM halves ORDER BY high - low LIMIT 1;
