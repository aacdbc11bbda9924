-- Objects that have been in a state for too long, as the view in_state shows them, by the clock of the database.

-- name: overdue
-- The streams that are in a state for a time or longer, those first that are there longest, after one of them; and now.
SELECT stream, since, version, position, now()
  FROM {views}.in_state
 WHERE category = %(category)s AND status = %(status)s AND since <= now() - %(after)s::interval
   AND (since, stream) > (%(since)s::timestamptz, %(stream)s)
 ORDER BY since, stream LIMIT %(limit)s;

-- name: next_overdue
-- In how many seconds the first of those that are not yet in a state for its time will be; nothing where none is in it.
SELECT min(extract(epoch FROM first.since + w.after - now()))::float8
  FROM unnest(%(categories)s::text[], %(statuses)s::text[], %(afters)s::interval[]) w (category, status, after)
 CROSS JOIN LATERAL (SELECT s.since FROM {views}.in_state s
                      WHERE s.category = w.category AND s.status = w.status AND s.since > now() - w.after
                      ORDER BY s.since LIMIT 1) first;
