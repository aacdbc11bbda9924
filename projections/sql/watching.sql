-- Looking at views while they are followed, by name. {schema} is the ledger's schema.

-- name: watched
-- What is known of each view: its live copy and how far it is; how far it is behind, in events (counted up to
-- %(counted)s, beyond that the difference of positions, which counts gaps too) and in seconds, the age of the first
-- event that is not in; parked streams; copies that are being built; how many projectors follow it.
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
-- How many events the live copy of each view has looked at.
SELECT v.name, v.live, c.events
  FROM {schema}.views v JOIN {schema}.view_copies c ON c.view = v.name AND c.copy = v.live;

-- name: log_newest
-- Position and time of the last event of the log.
SELECT position, recorded_at FROM {schema}.events ORDER BY position DESC LIMIT 1;
