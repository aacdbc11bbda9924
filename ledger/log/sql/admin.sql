-- The statements of `pledger init` and `pledger doctor`. {schema} is the ledger's schema; none of them
-- writes.

-- name: server_settings
-- The server's version, settings of durability, time zone and clock.
SELECT current_setting('server_version'), current_setting('server_version_num')::integer,
       current_setting('server_encoding'), current_setting('fsync'), current_setting('full_page_writes'),
       current_setting('synchronous_commit'), current_setting('max_prepared_transactions')::integer,
       current_setting('TimeZone'), clock_timestamp(), pg_is_in_recovery(),
       current_setting('default_transaction_read_only'), current_user::text, current_database()::text;

-- name: known_schema_number
-- The ledger's schema number; a separate statement, so that it also works on a ledger of another version.
SELECT coalesce(max(number), 0) FROM {schema}.migrations;

-- name: lock_class_sharers
-- Other ledgers of this database with our lock class, which would delay our readers with their appends.
SELECT n.nspname::text
  FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
 WHERE p.proname = 'lock_class' AND n.nspname <> %(schema)s
   AND p.prosrc = (SELECT o.prosrc FROM pg_proc o JOIN pg_namespace m ON m.oid = o.pronamespace
                    WHERE o.proname = 'lock_class' AND m.nspname = %(schema)s)
 ORDER BY 1;

-- name: prepared_transactions
-- Prepared transactions of this database, the oldest first.
SELECT gid, extract(epoch FROM clock_timestamp() - prepared)::float8
  FROM pg_prepared_xacts WHERE database = current_database() ORDER BY prepared;

-- name: own_rights
-- What the connected role may do with this ledger: append, read, change the tables it should not, everything.
SELECT (SELECT bool_and(has_function_privilege(p.oid, 'EXECUTE')) AND count(*) = 5
          FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
         WHERE n.nspname = %(schema)s AND p.proname IN ('append_one', 'append_stream', 'append_many', 'append_each', 'append_group'))
       AND has_schema_privilege(%(schema)s, 'USAGE'),
       has_schema_privilege(%(schema)s, 'USAGE') AND has_table_privilege(c.oid, 'SELECT'),
       has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE') OR pg_has_role(c.relowner, 'USAGE'),
       (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %(schema)s AND c.relname = 'events';

-- name: guarding_triggers
-- The triggers that hold the log append-only, and whether each fires.
SELECT t.tgname::text, t.tgenabled IN ('O', 'A')
  FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %(schema)s AND c.relname = 'events' AND NOT t.tgisinternal;

-- name: sampled_heads
-- Heads of the streams that the last events went to, beside the last version that the events know: how many streams
-- were looked at, how many heads are behind, how many ahead, how many are missing, and one stream that is not equal.
-- A stream whose last event is another application's bytes needs no head.
SELECT count(*), count(*) FILTER (WHERE h.version < e.version), count(*) FILTER (WHERE h.version > e.version),
       count(*) FILTER (WHERE h.version IS NULL AND e.ours),
       min(wanted.stream) FILTER (WHERE h.version <> e.version OR (h.version IS NULL AND e.ours))
  FROM (SELECT DISTINCT last.stream
          FROM (SELECT stream FROM {schema}.events ORDER BY position DESC LIMIT %(sample)s) last) wanted
 CROSS JOIN LATERAL (SELECT version, data IS NOT NULL AS ours FROM {schema}.events
                      WHERE stream = wanted.stream ORDER BY version DESC LIMIT 1) e
  LEFT JOIN {schema}.heads h ON h.stream = wanted.stream;

-- name: last_recorded_at
-- The time of the last event, and whether the server's clock is before it.
SELECT recorded_at, recorded_at > clock_timestamp()
  FROM {schema}.events ORDER BY position DESC LIMIT 1;

-- name: free_connections
-- Connections that ordinary roles may still open, and the maximum.
SELECT m.most - m.kept - (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'), m.most - m.kept
  FROM (SELECT current_setting('max_connections')::bigint AS most,
               current_setting('superuser_reserved_connections')::bigint
               + coalesce(current_setting('reserved_connections', true), '0')::bigint AS kept) m;

-- name: sessions
-- The connections to this database: program, how many.
SELECT coalesce(nullif(application_name, ''), 'unnamed'), count(*)
  FROM pg_stat_activity
 WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
 GROUP BY 1 ORDER BY 2 DESC, 1;

-- name: parked_by_reader
-- The readers with parked streams: how many streams, and name, position and error of the first one.
SELECT reader, count(*), (array_agg(stream ORDER BY position))[1], min(position), (array_agg(error ORDER BY position))[1]
  FROM {schema}.reader_parked GROUP BY reader ORDER BY reader;

-- name: views_behind
-- The views, each with how many streams it leaves out, the age in seconds of the first event that is not in, and why
-- it is not followed. A view that appends keep lacks nothing.
SELECT v.name, (SELECT count(*) FROM {schema}.view_parked p WHERE p.view = v.name AND p.copy = v.live),
       CASE WHEN NOT v.inline THEN (
           SELECT extract(epoch FROM clock_timestamp() - e.recorded_at)::float8 FROM {schema}.events e
            WHERE e.position > c.position ORDER BY e.position LIMIT 1) END,
       c.error
  FROM {schema}.views v JOIN {schema}.view_copies c ON c.view = v.name AND c.copy = v.live ORDER BY v.name;

-- name: open_appends
-- Transactions that hold an append open, with the position they hold readers back to, the oldest first.
SELECT l.pid, ((l.classid::bigint & 65535) << 32) | l.objid::bigint AS held_at,
       extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, a.backend_start))::float8 AS seconds,
       a.application_name, a.state, p.gid
  FROM pg_locks l
  LEFT JOIN pg_stat_activity a ON a.pid = l.pid
  LEFT JOIN pg_prepared_xacts p ON l.virtualtransaction = '-1/' || p.transaction
 WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.classid::bigint >> 16 = {schema}.lock_class()
   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
 ORDER BY seconds DESC NULLS FIRST;

-- name: left_locks
-- Sessions that hold the lock of the moment in which a position is taken, and do nothing: it was left behind, and every
-- append of several events waits for it.
SELECT l.pid, a.application_name, a.state
  FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
 WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.objid = 0
   AND l.classid::bigint = ({schema}.lock_class() | 32768) << 16
   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND a.state <> 'active';
