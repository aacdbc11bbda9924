-- The statements of the recorders of other applications. {schema} is the application's ledger.
--
-- An application's events are those with `raw` bodies. Its versions start at 1, and are then the ledger's own
-- (schema 1), or at 0, and are then one less (schema 0): see store/originators.py.

-- name: recorder_events
-- Events of one stream by the application's version: `gt` exclusive, `lte` inclusive.
SELECT version - (schema = 0)::integer, topic, raw
  FROM {schema}.events
 WHERE stream = %(stream)s AND raw IS NOT NULL AND version > %(gt)s AND version <= %(lte)s + 1
   AND version - (schema = 0)::integer > %(gt)s AND version - (schema = 0)::integer <= %(lte)s
 ORDER BY version LIMIT %(limit)s;

-- name: recorder_events_backwards
-- The same, the last first.
SELECT version - (schema = 0)::integer, topic, raw
  FROM {schema}.events
 WHERE stream = %(stream)s AND raw IS NOT NULL AND version > %(gt)s AND version <= %(lte)s + 1
   AND version - (schema = 0)::integer > %(gt)s AND version - (schema = 0)::integer <= %(lte)s
 ORDER BY version DESC LIMIT %(limit)s;

-- name: recorder_from_zero
-- A row if the last event of the stream is numbered from 0.
SELECT FROM (SELECT schema FROM {schema}.events WHERE stream = %(stream)s ORDER BY version DESC LIMIT 1) last
 WHERE last.schema = 0;

-- name: recorder_last
-- The last event up to a bound that was read before: a reader can continue from it, unlike from the bound
-- itself.
SELECT max(position) FROM {schema}.events WHERE position <= %(bound)s;

-- name: recorder_notifications
-- The log after a position, up to a bound that was read before; of some topics, or all where it is null.
SELECT position, stream, version - (schema = 0)::integer, topic, raw
  FROM {schema}.events
 WHERE position > %(after)s AND position <= %(bound)s AND raw IS NOT NULL
   AND (%(topics)s::text[] IS NULL OR topic = ANY (%(topics)s::text[]))
 ORDER BY position LIMIT %(limit)s;

-- name: recorder_track
-- Store the last processed notification; no row if it is not greater than the stored one.
INSERT INTO {schema}.tracking AS t (application, notification_id) VALUES (%(application)s, %(notification_id)s)
ON CONFLICT (application) DO UPDATE SET notification_id = excluded.notification_id
 WHERE t.notification_id < excluded.notification_id
RETURNING notification_id;

-- name: recorder_tracked
-- The notification that an application's processing has come to.
SELECT notification_id FROM {schema}.tracking WHERE application = %(application)s;

-- name: recorder_keep
-- Keep snapshots, all or none; versions may have gaps, but none may be there already.
INSERT INTO {schema}.snapshots (recorded_at, version, purpose, stream, topic, raw)
SELECT clock_timestamp(), u.version, %(purpose)s, u.stream, u.topic, u.raw
  FROM unnest(%(streams)s::text[], %(versions)s::bigint[], %(topics)s::text[], %(raws)s::bytea[])
       u (stream, version, topic, raw)
 ORDER BY u.stream COLLATE "C", u.version
RETURNING version;

-- name: recorder_kept
-- Snapshots of one stream by version: `gt` exclusive, `lte` inclusive.
SELECT version, topic, raw
  FROM {schema}.snapshots
 WHERE purpose = %(purpose)s AND stream = %(stream)s AND version > %(gt)s AND version <= %(lte)s
 ORDER BY version LIMIT %(limit)s;

-- name: recorder_kept_backwards
-- The same, the last first.
SELECT version, topic, raw
  FROM {schema}.snapshots
 WHERE purpose = %(purpose)s AND stream = %(stream)s AND version > %(gt)s AND version <= %(lte)s
 ORDER BY version DESC LIMIT %(limit)s;
