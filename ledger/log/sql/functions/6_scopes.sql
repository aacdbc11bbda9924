-- Locks of scopes: they make people and workers wait instead of conflicting. Correctness depends only on the
-- versions at the append, so losing these locks does no harm.
--
-- Two-part advisory keys, so that they are never confused with marks of the log's order, which have one part. The
-- first part is negative; that of a command's lock is not.

-- Acquire the locks of a path for this session, in its order: shared, the last exclusive if p_exclusive. p_keys: two
-- integers per name. p_timeout: milliseconds for all of them together, 0 does not wait, null waits without bound.
-- Returns how many were granted, or after a deadlock -1 minus that number. The caller releases them, and all
-- locks of the session when its last scope ends, because a lock that is granted just at the time-out is not counted.
CREATE OR REPLACE FUNCTION acquire_scope(p_keys integer[], p_exclusive boolean, p_timeout integer) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    n CONSTANT integer := cardinality(p_keys) / 2;
    deadline CONSTANT timestamptz := clock_timestamp() + p_timeout * interval '1 ms';
    granted integer := 0;
BEGIN
    -- Free locks are acquired without the cost of a block with an exception. A lock with waiters is not free.
    WHILE CASE WHEN granted = n THEN false
               WHEN p_exclusive AND granted = n - 1 THEN pg_try_advisory_lock(p_keys[2 * n - 1], p_keys[2 * n])
               ELSE pg_try_advisory_lock_shared(p_keys[2 * granted + 1], p_keys[2 * granted + 2]) END LOOP
        granted := granted + 1;
    END LOOP;
    IF granted = n OR p_timeout = 0 THEN
        RETURN granted;
    END IF;
    BEGIN
        WHILE granted < n LOOP
            IF p_timeout IS NOT NULL THEN
                PERFORM set_config('lock_timeout',
                                   greatest(1, ceil(extract(epoch FROM deadline - clock_timestamp()) * 1000))::text, true);
            END IF;
            IF p_exclusive AND granted = n - 1 THEN
                PERFORM pg_advisory_lock(p_keys[2 * n - 1], p_keys[2 * n]);
            ELSE
                PERFORM pg_advisory_lock_shared(p_keys[2 * granted + 1], p_keys[2 * granted + 2]);
            END IF;
            granted := granted + 1;
        END LOOP;
    EXCEPTION
        WHEN lock_not_available THEN RETURN granted;
        WHEN deadlock_detected THEN RETURN -1 - granted;
    END;
    RETURN granted;
END $$;

-- The same for a scope that opens the last name: takes its lock exclusively, and returns the streams of the
-- path as they are then, as JSON: [version, state, tail] for each, as in the statement states_of, with the
-- state of the last one as text. If a lock is missing, it returns the number from acquire_scope. One call,
-- because a second would double the cost.
CREATE OR REPLACE FUNCTION open_scope(p_keys integer[], p_timeout integer, p_names text[], p_schemas integer[]) RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    granted CONSTANT integer := acquire_scope(p_keys, true, p_timeout);
BEGIN
    IF granted < cardinality(p_names) THEN
        RETURN granted;
    END IF;
    RETURN (SELECT json_agg(json_build_array(coalesce(h.state_version, 0), CASE WHEN wanted.i < cardinality(p_names) THEN h.state
                                                                             ELSE to_jsonb(h.state::text) END, e.tail)
                            ORDER BY wanted.i)
              FROM unnest((SELECT p_names), (SELECT p_schemas)) WITH ORDINALITY wanted (stream, state_schema, i)
              LEFT JOIN LATERAL (
                   SELECT CASE WHEN state_schema = wanted.state_schema THEN state_version ELSE 0 END AS state_version,
                          CASE WHEN state_schema = wanted.state_schema THEN state END AS state
                     FROM heads WHERE stream = wanted.stream) h ON true
              LEFT JOIN LATERAL (
                   SELECT json_agg(json_build_array(t.topic, t.schema, t.data::text, t.recorded_at) ORDER BY t.version) AS tail
                     FROM (SELECT version, topic, schema, data, recorded_at FROM events
                            WHERE stream = wanted.stream AND version > coalesce(h.state_version, 0) ORDER BY version) t) e
                   ON true);
END $$;

-- Release the first p_count locks of a path, in reverse order.
CREATE OR REPLACE FUNCTION release_scope(p_keys integer[], p_exclusive boolean, p_count integer) RETURNS integer
LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN REVERSE p_count .. 1 LOOP
        IF p_exclusive AND i = cardinality(p_keys) / 2 THEN
            PERFORM pg_advisory_unlock(p_keys[2 * i - 1], p_keys[2 * i]);
        ELSE
            PERFORM pg_advisory_unlock_shared(p_keys[2 * i - 1], p_keys[2 * i]);
        END IF;
    END LOOP;
    RETURN p_count;
END $$;
