-- How much was moved in machines, by name: of the view where it is made, else of the events. {schema} is the ledger's.

-- name: machine_activity
-- Objects, moves and the time of the last one, of each machine, from the view in_state.
SELECT category, count(*), sum(version)::bigint, max(since) FROM {views}.in_state
 WHERE category = ANY (%(machines)s::text[] COLLATE "C") GROUP BY category;

-- name: machine_activity_of_events
-- The same from the events; 0 is the character after /.
SELECT m.name, e.objects, e.moves, e.at
  FROM unnest(%(machines)s::text[]) m (name)
 CROSS JOIN LATERAL (
       SELECT count(DISTINCT stream) AS objects, count(*) AS moves, max(recorded_at) AS at FROM {schema}.events
        WHERE stream >= (m.name || '/') COLLATE "C" AND stream < (m.name || '0') COLLATE "C") e
 WHERE e.moves > 0;
