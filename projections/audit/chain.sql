-- chain.py: {schema} is the ledger's schema, {views} that of its views.

-- name: chain
-- An event, its cause, the cause of that, and so on, beginning with the event. A circle ends where it closes.
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
-- The first position of the append with a command id.
SELECT first_position FROM {schema}.commands WHERE command = %(command)s;

-- name: linked
-- Every event between two positions that names a cause or carries a correlation: the position of that cause,
-- and whether it carries the correlation. There is no index for either: the events are read once, in order.
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
-- Events by their positions, each with the position of its cause, null if that is not recorded.
SELECT CASE WHEN jsonb_typeof(e.meta->'causation') = 'string'
            THEN (SELECT c.first_position FROM {schema}.commands c WHERE c.command = e.meta->>'causation')
            WHEN e.meta->>'causation' ~ '^\d{{1,18}}$'
            THEN (SELECT c.position FROM {schema}.events c WHERE c.position = (e.meta->>'causation')::bigint) END,
       e.position, e.stream, e.version, e.topic, e.schema, e.data::text, e.raw, e.meta::text, e.recorded_at
  FROM {schema}.events e WHERE e.position = ANY (%(positions)s::bigint[]) ORDER BY e.position;

-- name: position_near
-- Approximately the last position at or before a time, by bisection: exact if the clock was steady, which is
-- enough to bound a search.
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
