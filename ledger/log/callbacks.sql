-- The time limit of the server for an idle transaction in which callbacks run.

-- name: limit_idling
-- Let the server end this transaction when it is idle for the given milliseconds; an existing limit stays.
WITH now AS MATERIALIZED (SELECT current_setting('idle_in_transaction_session_timeout') AS setting)
SELECT setting, set_config('idle_in_transaction_session_timeout',
                           CASE WHEN setting = '0' THEN %(most)s::text ELSE setting END, true)
  FROM now;

-- name: set_idling
-- Restore the former limit.
SELECT set_config('idle_in_transaction_session_timeout', %(limit)s::text, true);

