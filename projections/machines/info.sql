-- The machines of a ledger and their activity. A machine's name is the category of its objects' streams.

-- name: undefined
-- The machines that have moves but no definition: those that were adopted, before the first move by a definition. 0 is
-- the character after /.
SELECT m.name
  FROM (SELECT left(topic, -6) AS name, topic FROM {schema}.topic_statuses
         WHERE field = 'to_state' AND right(topic, 6) = '.moved') m
 WHERE NOT EXISTS (SELECT FROM {schema}.events d WHERE d.stream = ('machine/' || m.name) COLLATE "C")
   AND EXISTS (SELECT FROM {schema}.events e
                WHERE e.stream >= (m.name || '/') COLLATE "C" AND e.stream < (m.name || '0') COLLATE "C"
                  AND e.topic = m.topic)
 ORDER BY m.name COLLATE "C";

-- name: pairs_moved
-- Which state followed which in the moves of a machine, in the order in which that first happened.
SELECT e.data ->> 'from_state', e.data ->> 'to_state'
  FROM {schema}.events e
 WHERE e.stream >= %(low)s AND e.stream < %(high)s AND e.topic = %(topic)s
 GROUP BY 1, 2 ORDER BY min(e.position);

-- name: activity
-- Objects, moves and the time of the last one, of each machine, from the view in_state.
SELECT category, count(*), sum(version)::bigint, max(since) FROM {views}.in_state
 WHERE category = ANY (%(machines)s::text[] COLLATE "C") GROUP BY category;

-- name: activity_of_events
-- The same from the events; 0 is the character after /.
SELECT m.name, e.objects, e.moves, e.at
  FROM unnest(%(machines)s::text[]) m (name)
 CROSS JOIN LATERAL (
       SELECT count(DISTINCT stream) AS objects, count(*) AS moves, max(recorded_at) AS at FROM {schema}.events
        WHERE stream >= (m.name || '/') COLLATE "C" AND stream < (m.name || '0') COLLATE "C") e
 WHERE e.moves > 0;
