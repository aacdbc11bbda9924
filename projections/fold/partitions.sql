-- partitions.py: {schema} is the ledger's schema, {views} that of its views.

-- name: fold_total
-- How many events the streams with a prefix have.
SELECT count(*) FROM {schema}.events
 WHERE stream >= %(start)s::text COLLATE "C" AND stream < %(below)s::text COLLATE "C";

-- name: fold_places
-- The streams of events at a number of evenly spaced places of the log, by name; a stream with many events
-- can occur more than once.
SELECT e.stream
  FROM (SELECT min(position) AS first, max(position) AS last FROM {schema}.events) log
 CROSS JOIN generate_series(1, %(places)s::integer) place
 CROSS JOIN LATERAL (SELECT stream FROM {schema}.events
                      WHERE position >= log.first + (log.last - log.first) * place / %(places)s
                      ORDER BY position LIMIT 1) e
 WHERE e.stream >= %(start)s::text COLLATE "C" AND e.stream < %(below)s::text COLLATE "C"
 ORDER BY e.stream;

-- name: fold_sample
-- Random streams: those of events at random positions, and some that have a head, whether or not they have
-- events. More positions are drawn than streams are wanted, since several may be of one stream.
SELECT stream FROM (
    SELECT e.stream
      FROM (SELECT min(position) AS first, max(position) AS last FROM {schema}.events) log
     CROSS JOIN generate_series(1, 3 * %(many)s::integer + 50) nth
     CROSS JOIN LATERAL (SELECT log.first + floor((log.last - log.first + 1) * (random() + 0 * nth))::bigint AS position) place
     CROSS JOIN LATERAL (SELECT stream FROM {schema}.events WHERE position >= place.position ORDER BY position LIMIT 1) e
    UNION
    SELECT stream FROM (SELECT stream FROM {schema}.heads
                         WHERE stream >= %(start)s::text COLLATE "C" AND stream < %(below)s::text COLLATE "C"
                         ORDER BY random() LIMIT greatest(1, %(many)s::integer / 2)) h) wanted
 WHERE stream >= %(start)s::text COLLATE "C" AND stream < %(below)s::text COLLATE "C"
 ORDER BY random() LIMIT %(many)s;
