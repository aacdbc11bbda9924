-- Locks of scopes: they make people and workers wait instead of conflicting. Correctness depends only on the
-- versions at the append, so losing these locks does no harm.
--
-- Two-part advisory keys, so that they are never taken for marks of the log's order, which have one part. The
-- first part is negative, that of a command's lock is not.

-- Take the locks of a path for this session, in its order: shared, the last exclusive if wanted. p_keys: two
-- integers a name. p_timeout: milliseconds for all of them together, 0 does not wait, null waits without bound.
-- Returns how many were taken, or after a deadlock -1 less that number. The caller gives them back, and whatever
-- else the session holds when its last scope ends: a lock that is granted just when its time is over stays.
CREATE OR REPLACE FUNCTION hold_scope(p_keys integer[], p_exclusive boolean, p_timeout integer) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    n CONSTANT integer := cardinality(p_keys) / 2;
    deadline CONSTANT timestamptz := clock_timestamp() + p_timeout * interval '1 ms';
    taken integer := 0;
BEGIN
    -- Free locks are taken without the cost of a block with an exception. A lock with waiters is not free.
    WHILE CASE WHEN taken = n THEN false
               WHEN p_exclusive AND taken = n - 1 THEN pg_try_advisory_lock(p_keys[2 * n - 1], p_keys[2 * n])
               ELSE pg_try_advisory_lock_shared(p_keys[2 * taken + 1], p_keys[2 * taken + 2]) END LOOP
        taken := taken + 1;
    END LOOP;
    IF taken = n OR p_timeout = 0 THEN
        RETURN taken;
    END IF;
    BEGIN
        WHILE taken < n LOOP
            IF p_timeout IS NOT NULL THEN
                PERFORM set_config('lock_timeout',
                                   greatest(1, ceil(extract(epoch FROM deadline - clock_timestamp()) * 1000))::text, true);
            END IF;
            IF p_exclusive AND taken = n - 1 THEN
                PERFORM pg_advisory_lock(p_keys[2 * n - 1], p_keys[2 * n]);
            ELSE
                PERFORM pg_advisory_lock_shared(p_keys[2 * taken + 1], p_keys[2 * taken + 2]);
            END IF;
            taken := taken + 1;
        END LOOP;
    EXCEPTION
        WHEN lock_not_available THEN RETURN taken;
        WHEN deadlock_detected THEN RETURN -1 - taken;
    END;
    RETURN taken;
END $$;

-- The same for a scope that opens the last name: takes its lock exclusively, and returns the streams of the
-- path as they are then, as JSON: [version, state, tail] for each, as in the statement states_of, with the
-- state of the last one as text. If a lock is missing, it returns the number from hold_scope. One call,
-- because a second would double the cost.
CREATE OR REPLACE FUNCTION open_scope(p_keys integer[], p_timeout integer, p_names text[], p_schemas integer[]) RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    taken CONSTANT integer := hold_scope(p_keys, true, p_timeout);
BEGIN
    IF taken < cardinality(p_names) THEN
        RETURN taken;
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
