-- watch.py: {schema} is the ledger's schema, {views} that of its views.

-- name: parked
-- The parked streams of the copies that are read, of one view or of all, the first event first.
SELECT p.view, p.copy, p.stream, p.position, p.error, p.event, p.parked_at, p.tries
  FROM {schema}.view_parked p JOIN {schema}.views v ON v.name = p.view AND v.live = p.copy
 WHERE %(view)s::text IS NULL OR p.view = %(view)s
 ORDER BY p.view, p.position;

-- name: watched
-- Each view: its live copy and its position; its lag in events (counted up to
-- %(counted)s, beyond that the difference of positions, which counts gaps too) and in seconds, the age of the
-- first event that is not in; parked streams; copies that are being built; how many projectors follow it.
SELECT v.name, v.live, v.inline, c.position, c.events, c.definition, c.updated_at, c.error,
       CASE WHEN NOT v.inline THEN CASE WHEN l.many > %(counted)s THEN greatest(l.many, l.newest - c.position) ELSE l.many END END,
       CASE WHEN NOT v.inline THEN coalesce(greatest(extract(epoch FROM clock_timestamp() - l.since), 0), 0)::float8 END,
       (SELECT count(*) FROM {schema}.view_parked p WHERE p.view = v.name AND p.copy = v.live),
       ARRAY(SELECT b.copy FROM {schema}.view_copies b WHERE b.view = v.name AND b.building ORDER BY b.copy),
       (SELECT count(DISTINCT k.pid) FROM pg_locks k
         WHERE k.locktype = 'advisory' AND k.granted AND k.objsubid = 2
           AND k.classid::bigint = {schema}.lock_class() + 131072
           AND k.objid::bigint = hashtext(v.name)::bigint & 4294967295
           AND k.database = (SELECT oid FROM pg_database WHERE datname = current_database()))
  FROM {schema}.views v
  LEFT JOIN {schema}.view_copies c ON c.view = v.name AND c.copy = v.live
  LEFT JOIN LATERAL (
       SELECT count(*) AS many, (SELECT max(position) FROM {schema}.events) AS newest,
              (SELECT recorded_at FROM {schema}.events WHERE position > c.position ORDER BY position LIMIT 1) AS since
         FROM (SELECT FROM {schema}.events WHERE position > c.position LIMIT %(counted)s + 1) e) l ON NOT v.inline
 ORDER BY v.name;

-- name: events_looked_at
-- How many events the live copy of each view has read.
SELECT v.name, v.live, c.events
  FROM {schema}.views v JOIN {schema}.view_copies c ON c.view = v.name AND c.copy = v.live;
