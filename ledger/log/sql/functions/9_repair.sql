-- Repair of what is derived from the events: heads and rows of command ids. Each function reads the events
-- again before it changes anything, and makes appends wait only for the rows of one short call.

-- Whether the event at a position carries a command id.
CREATE OR REPLACE FUNCTION carries_command(p_position bigint, p_command text) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM events e WHERE e.position = p_position AND e.meta ->> 'command' = p_command)
$$;

-- Set heads to the fold of their events, if the last event of the stream is still the one that was folded
-- (p_versions; 0: the stream has no events, and its head goes). Where there is no status to know, or no state, that of
-- the head stays, and so does its lease token where no event holds it (p_tokens null; 0: there is none).
-- Returns for each: repaired, inserted, removed, same, moved (the stream went on: fold again), busy (an append holds it).
-- In the order of names, as appends lock heads; a row that is held is not waited for.
CREATE OR REPLACE FUNCTION repair_heads(p_streams text[], p_versions bigint[], p_statuses text[], p_with_status boolean[],
                                      p_states text[], p_state_versions bigint[], p_state_schemas integer[],
                                      p_with_state boolean[], p_tokens bigint[]) RETURNS text[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '200ms' AS $$
DECLARE
    outcomes text[] := array_fill(NULL::text, ARRAY[coalesce(cardinality(p_streams), 0)]);
    wanted record;
BEGIN
    FOR wanted IN SELECT * FROM unnest(p_streams, p_versions, p_statuses, p_with_status, p_states, p_state_versions,
                                       p_state_schemas, p_with_state, p_tokens) WITH ORDINALITY
                           u (stream, version, status, with_status, state, state_version, state_schema, with_state, token, i)
                   ORDER BY u.stream COLLATE "C" LOOP
        BEGIN
            outcomes[wanted.i] := repair_head(wanted.stream, wanted.version, wanted.status, wanted.with_status,
                                            wanted.state::jsonb, wanted.state_version, wanted.state_schema,
                                            wanted.with_state, wanted.token);
        EXCEPTION
            WHEN lock_not_available THEN outcomes[wanted.i] := 'busy';
            WHEN SQLSTATE 'LG002' THEN outcomes[wanted.i] := 'moved'; -- and the head that was made is undone
        END;
    END LOOP;
    RETURN outcomes;
END $$;

-- Repair one head. The row is locked first, and only then, in a new snapshot, the events are read.
CREATE OR REPLACE FUNCTION repair_head(p_stream text, p_version bigint, p_status text, p_with_status boolean, p_state jsonb,
                                     p_state_version bigint, p_state_schema integer, p_with_state boolean,
                                     p_token bigint) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    head heads;
    made boolean := false;
BEGIN
    SELECT h.* INTO head FROM heads h WHERE h.stream = p_stream FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        IF EXISTS (SELECT FROM heads h WHERE h.stream = p_stream) THEN
            RETURN 'busy';
        ELSIF p_version = 0 THEN
            RETURN 'same';
        END IF;
        INSERT INTO heads (stream, version) VALUES (p_stream, p_version) ON CONFLICT DO NOTHING RETURNING * INTO head;
        IF NOT FOUND THEN
            RETURN 'moved';
        END IF;
        made := true;
    END IF;
    IF last_version(p_stream) <> p_version THEN
        RAISE SQLSTATE 'LG002';
    END IF;
    IF p_version = 0 THEN
        DELETE FROM heads h WHERE h.stream = p_stream;
        RETURN 'removed';
    END IF;
    IF p_with_status THEN
        head.status := p_status;
    END IF;
    IF p_with_state THEN
        head.state := p_state;
        head.state_version := p_state_version;
        head.state_schema := p_state_schema;
    ELSIF head.state_version > p_version THEN -- folded from events that are not there
        head.state := NULL;
        head.state_version := 0;
        head.state_schema := NULL;
    END IF;
    IF p_token IS NOT NULL THEN
        head.token := nullif(p_token, 0);
    END IF;
    UPDATE heads h
       SET version = p_version, status = head.status, state = head.state, state_version = head.state_version,
           state_schema = head.state_schema, token = head.token
     WHERE h.stream = p_stream
       AND (h.version, h.status, h.state::text, h.state_version, h.state_schema, h.token) IS DISTINCT FROM
           (p_version, head.status, head.state::text, head.state_version, head.state_schema, head.token);
    RETURN CASE WHEN made THEN 'inserted' WHEN FOUND THEN 'repaired' ELSE 'same' END;
END $$;

-- Make the appends to one stream wait until this transaction ends, so that it can be folded up to its end;
-- false where an append holds it too long.
CREATE OR REPLACE FUNCTION hold_head(p_stream text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '2s' AS $$
BEGIN
    PERFORM ensure_heads(ARRAY[p_stream]);
    PERFORM FROM lock_heads(ARRAY[p_stream], ARRAY[true]);
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END $$;

-- Set rows of command ids by the events: first and last position and time of the append, and its digest. Where
-- an id is in two appends, the first one counts. Takes the lock of each id, as an append does.
-- Returns for each: inserted, repaired, same, moved (the events differ), busy.
CREATE OR REPLACE FUNCTION restore_commands(p_commands text[], p_digests bytea[], p_firsts bigint[], p_lasts bigint[],
                                            p_times timestamptz[]) RETURNS text[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '200ms' AS $$
DECLARE
    outcomes text[] := array_fill(NULL::text, ARRAY[coalesce(cardinality(p_commands), 0)]);
    wanted record;
BEGIN
    FOR wanted IN SELECT * FROM unnest(p_commands, p_digests, p_firsts, p_lasts, p_times) WITH ORDINALITY
                           u (command, digest, first, last, at, i)
                   ORDER BY u.command COLLATE "C" LOOP
        BEGIN
            outcomes[wanted.i] := restore_command(wanted.command, wanted.digest, wanted.first, wanted.last, wanted.at);
        EXCEPTION WHEN lock_not_available THEN
            outcomes[wanted.i] := 'busy';
        END;
    END LOOP;
    RETURN outcomes;
END $$;

-- One of them.
CREATE OR REPLACE FUNCTION restore_command(p_command text, p_digest bytea, p_first bigint, p_last bigint,
                                           p_at timestamptz) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    there boolean;
BEGIN
    PERFORM pg_advisory_xact_lock(lock_class()::integer, hashtext(p_command));
    IF NOT carries_command(p_first, p_command) THEN
        RETURN 'moved';
    END IF;
    there := EXISTS (SELECT FROM commands c WHERE c.command = p_command);
    INSERT INTO commands AS c (command, digest, first_position, last_position, recorded_at)
    VALUES (p_command, p_digest, p_first, p_last, p_at)
    ON CONFLICT (command) DO UPDATE
       SET digest = excluded.digest, first_position = excluded.first_position, last_position = excluded.last_position,
           recorded_at = excluded.recorded_at
     WHERE (c.first_position, c.last_position, c.recorded_at) <> (p_first, p_last, p_at)
       AND (c.first_position >= p_first OR NOT carries_command(c.first_position, p_command));
    RETURN CASE WHEN NOT FOUND THEN 'same' WHEN there THEN 'repaired' ELSE 'inserted' END;
END $$;

-- Remove rows of command ids that point to no event with that id; returns the removed ids.
CREATE OR REPLACE FUNCTION remove_commands(p_commands text[]) RETURNS SETOF text
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '200ms' AS $$
    DELETE FROM commands c
     WHERE c.command = ANY (p_commands) AND NOT carries_command(c.first_position, c.command)
    RETURNING c.command
$$;
