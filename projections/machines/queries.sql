-- Which objects of a machine are in which state, from the view in_state. A machine's name is the category of its
-- objects' streams.

-- name: objects
-- A page of the objects in some states, by state in the given order, then by time and name. Each state is read by
-- itself, because the index is ordered only within a state. The end of the previous page applies to the first state.
SELECT s.stream, s.status, s.since, s.version, s.position
  FROM unnest(%(states)s::text[]) WITH ORDINALITY w (status, n)
 CROSS JOIN LATERAL (
       SELECT i.stream, i.status, i.since, i.version, i.position
         FROM {views}.in_state i
        WHERE i.category = %(machine)s AND i.status = w.status COLLATE "C"
          AND (%(longer)s::interval IS NULL OR i.since < now() - %(longer)s::interval)
          AND i.since >= CASE WHEN w.n = 1 THEN coalesce(%(since)s::timestamptz, '-infinity') ELSE '-infinity' END
          AND (w.n > 1 OR %(since)s::timestamptz IS NULL
               OR (i.since, i.stream) > (%(since)s::timestamptz, %(stream)s::text COLLATE "C"))
        ORDER BY i.since, i.stream LIMIT %(limit)s) s
 ORDER BY w.n, s.since, s.stream LIMIT %(limit)s;

-- name: counts
-- How many objects are in each state, and since when the first of them is.
SELECT status, streams, longest FROM {views}.in_state_counts WHERE category = %(machine)s;

-- name: states_held
-- The states that objects are in, found by jumps in the index, however many objects each state has.
WITH RECURSIVE held (status) AS (
    (SELECT status FROM {views}.in_state WHERE category = %(machine)s ORDER BY status LIMIT 1)
    UNION ALL
    SELECT (SELECT i.status FROM {views}.in_state i WHERE i.category = %(machine)s AND i.status > h.status
             ORDER BY i.status LIMIT 1)
      FROM held h WHERE h.status IS NOT NULL)
SELECT status FROM held WHERE status IS NOT NULL;
