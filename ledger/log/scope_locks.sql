-- The locks of scopes, on sessions of their own.

-- name: acquire_scope
-- Acquire the locks of a path for this session.
SELECT {schema}.acquire_scope(%s::integer[], %s::boolean, %s::integer);

-- name: open_scope
-- Acquire the locks of a path for this session, and return its streams as they are then.
SELECT {schema}.open_scope(%s::integer[], %s::integer, %s::text[], %s::integer[]);

-- name: release_scope
-- Release the first locks of a path.
SELECT {schema}.release_scope(%s::integer[], %s::boolean, %s::integer);

-- name: release_scopes
-- Release all locks of a session.
SELECT pg_advisory_unlock_all();

-- name: scope_server
-- The session's pid on the server, the ledger, and whether the server is a standby.
SELECT pg_backend_pid(), ledger, standby FROM {schema}.describe();

-- name: scope_session
-- Prepare a session for scopes: no time limits, and the end of a client is noticed even while it waits, where
-- the server's system supports that. Read committed, so that a scope sees what was stored while it waited for
-- its lock.
SELECT set_config('default_transaction_isolation', 'read committed', false),
       set_config('statement_timeout', '0', false), set_config('lock_timeout', '0', false),
       set_config('idle_session_timeout', '0', false),
       CASE WHEN current_setting('server_version_num')::integer >= 170000
            THEN set_config('transaction_timeout', '0', false) END,
       set_config('client_connection_check_interval', CASE WHEN version() ~ 'linux|darwin|bsd' THEN '1s' ELSE '0' END,
                  false),
       set_config('tcp_keepalives_idle', '15', false), set_config('tcp_keepalives_interval', '5', false),
       set_config('tcp_keepalives_count', '3', false);

-- name: scope_holder
-- The first holder of a scope's lock, and the number of holders.
SELECT a.application_name, a.pid, a.client_addr::text, count(*) OVER ()
  FROM pg_locks l JOIN pg_stat_activity a USING (pid)
 WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.pid <> pg_backend_pid()
   AND l.classid = (%(high)s::bigint & 4294967295)::oid AND l.objid = (%(low)s::bigint & 4294967295)::oid
   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
 ORDER BY a.backend_start LIMIT 1;
