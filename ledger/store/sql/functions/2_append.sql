-- The append. One call is one durable transaction; conflicts and repeated commands are RETURNED, so that a
-- surrounding transaction of the user's survives them. Locks are taken in one order everywhere: command,
-- then heads by stream name, then events by (stream, version); so two appends cannot deadlock.
--
-- expected: n >= 1 exactly this version; 0 the stream is new; -1 any; -2 the stream exists; -3 guard.

-- The last version that the events know; the law where a head is behind or missing.
CREATE OR REPLACE FUNCTION last_version(p_stream text) RETURNS bigint
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT coalesce((SELECT version FROM events WHERE stream = p_stream ORDER BY version DESC LIMIT 1), 0)
$$;

-- A commit of an append is durable whatever the session says.
CREATE OR REPLACE FUNCTION be_durable() RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END $$;

-- What a head's `state` becomes: \x01 in the text stands for the time of the append. A raw control character
-- cannot occur in JSON text, so nothing a user writes can be taken for it.
CREATE OR REPLACE FUNCTION stamped(p_state text, p_at timestamptz) RETURNS jsonb
LANGUAGE sql STABLE PARALLEL SAFE SET search_path FROM CURRENT AS $$
    SELECT replace(p_state, E'\x01', to_char(p_at AT TIME ZONE 'UTC', '"\""YYYY-MM-DD"T"HH24:MI:SS.US"Z\""'))::jsonb
$$;

-- Set a head to what the events say, its state unknown: after an append without heads came between.
CREATE OR REPLACE FUNCTION heal_head(p_stream text) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    truth bigint := last_version(p_stream);
BEGIN
    UPDATE heads SET version = truth, state_version = 0, state = NULL, state_schema = NULL, status = NULL
     WHERE stream = p_stream;
    RETURN truth;
END $$;

-- The version of a stream, with its head row locked; makes the row where there is none (version 0: a new
-- stream). Used where the head's own word did not fit, and by appends of several events.
CREATE OR REPLACE FUNCTION lock_head(p_stream text, OUT version bigint, OUT status text, OUT token bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    LOOP
        SELECT h.version, h.status, h.token INTO version, status, token FROM heads h WHERE h.stream = p_stream FOR NO KEY UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO heads (stream, version) VALUES (p_stream, last_version(p_stream)) ON CONFLICT DO NOTHING;
    END LOOP;
    IF EXISTS (SELECT FROM events e WHERE e.stream = p_stream AND e.version = lock_head.version + 1) THEN
        version := heal_head(p_stream);
        status := NULL;
    END IF;
END $$;

-- What a command id recorded. The lock makes a second call of the same id wait for the first to end.
CREATE OR REPLACE FUNCTION recorded_by(p_command text, p_digest bytea, OUT outcome text, OUT first_position bigint,
                                       OUT last_position bigint, OUT recorded_at timestamptz)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    found_digest bytea;
BEGIN
    PERFORM pg_advisory_xact_lock(lock_class()::integer, hashtext(p_command));
    SELECT c.digest, c.first_position, c.last_position, c.recorded_at
      INTO found_digest, first_position, last_position, recorded_at
      FROM commands c WHERE c.command = p_command;
    IF FOUND THEN
        outcome := CASE WHEN found_digest = p_digest THEN 'repeated' ELSE 'reused' END;
    END IF;
END $$;

-- Append one event to one stream at an exact version (0: a new stream), the common case.
-- Returns outcome recorded | conflict | repeated | reused; version: the event's, or the one found.
CREATE OR REPLACE FUNCTION append_one(
    p_stream text, p_expected bigint, p_topic text, p_schema smallint, p_data jsonb, p_raw bytea, p_meta jsonb,
    p_head boolean DEFAULT false, p_status text DEFAULT NULL, p_state text DEFAULT NULL,
    p_state_schema integer DEFAULT NULL, p_command text DEFAULT NULL, p_digest bytea DEFAULT NULL,
    OUT outcome text, OUT "position" bigint, OUT version bigint, OUT recorded_at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    last bigint;
BEGIN
    IF current_setting('synchronous_commit') <> 'on' THEN
        PERFORM be_durable();
    END IF;
    IF p_command IS NOT NULL THEN
        SELECT r.outcome, r.first_position, r.recorded_at INTO outcome, position, recorded_at
          FROM recorded_by(p_command, p_digest) r;
        IF outcome IS NOT NULL THEN
            version := (SELECT e.version FROM events e WHERE e.position = append_one.position);
            RETURN;
        END IF;
    END IF;
    -- The mark of functions/1_order.sql, written out here: a call would cost more than the lock.
    IF coalesce(current_setting('ledger.mark_' || lock_class(), true), '') = '' THEN
        last := coalesce(pg_sequence_last_value('positions'), 0);
        PERFORM pg_advisory_xact_lock_shared((lock_class() << 48) | last),
                set_config('ledger.mark_' || lock_class(), last::text, true);
    END IF;
    version := p_expected + 1;
    recorded_at := clock_timestamp();
    IF p_head THEN
        IF p_expected = 0 THEN
            INSERT INTO heads (stream, version, state_version, state_schema, status, state)
            VALUES (p_stream, 1, CASE WHEN p_state IS NULL THEN 0 ELSE 1 END, p_state_schema, p_status,
                    stamped(p_state, recorded_at))
            ON CONFLICT DO NOTHING;
        ELSE
            UPDATE heads h
               SET version = append_one.version, status = coalesce(p_status, h.status),
                   state = coalesce(stamped(p_state, append_one.recorded_at), h.state),
                   state_version = CASE WHEN p_state IS NULL THEN h.state_version ELSE append_one.version END,
                   state_schema = CASE WHEN p_state IS NULL THEN h.state_schema ELSE p_state_schema END
             WHERE h.stream = p_stream AND h.version = p_expected;
        END IF;
        IF NOT FOUND THEN
            IF (SELECT l.version FROM lock_head(p_stream) l) <> p_expected THEN
                outcome := 'conflict';
                version := (SELECT h.version FROM heads h WHERE h.stream = p_stream);
                RETURN;
            END IF;
            UPDATE heads h
               SET version = append_one.version, status = p_status, state = stamped(p_state, append_one.recorded_at),
                   state_version = CASE WHEN p_state IS NULL THEN 0 ELSE append_one.version END, state_schema = p_state_schema
             WHERE h.stream = p_stream;
        END IF;
    ELSIF p_expected > 0 AND NOT EXISTS (SELECT FROM events e WHERE e.stream = p_stream AND e.version = p_expected) THEN
        outcome := 'conflict';
        version := last_version(p_stream);
        RETURN;
    END IF;
    position := take_position();
    INSERT INTO events (position, recorded_at, version, schema, stream, topic, data, raw, meta)
    VALUES (position, recorded_at, version, p_schema, p_stream, p_topic, p_data, p_raw, p_meta)
    ON CONFLICT ON CONSTRAINT events_stream_version DO NOTHING;
    IF NOT FOUND THEN
        position := NULL;
        outcome := 'conflict';
        version := CASE WHEN p_head THEN heal_head(p_stream) ELSE last_version(p_stream) END;
        RETURN;
    END IF;
    PERFORM apply_effects(position, position);
    IF p_command IS NOT NULL THEN
        INSERT INTO commands (command, digest, first_position, last_position, recorded_at)
        VALUES (p_command, p_digest, position, position, recorded_at);
    END IF;
    outcome := 'recorded';
END $$;
