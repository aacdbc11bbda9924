-- feeder.py: {schema} is the ledger's schema.

-- name: events_below
-- The events of all streams below some prefixes, after a position and up to another, in the order of the log.
SELECT e.position, e.stream, e.version, e.topic, e.schema, e.data::text, e.raw, NULL::text, e.recorded_at
  FROM unnest(%(prefixes)s::text[]) p (prefix)
 CROSS JOIN LATERAL (
       SELECT * FROM {schema}.events
        WHERE stream >= p.prefix COLLATE "C" AND stream < (p.prefix || U&'\+10FFFF') COLLATE "C"
          AND position > %(after)s AND position <= %(upto)s OFFSET 0) e
 ORDER BY e.position;
