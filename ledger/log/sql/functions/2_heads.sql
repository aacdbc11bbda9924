-- Heads: one row per stream, for its version check, snapshot and current state. The events are authoritative:
-- where a head is missing or behind, these functions check the events before they refuse anything.

-- The last version of a stream, from its events.
CREATE OR REPLACE FUNCTION last_version(p_stream text) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT coalesce((SELECT version FROM events WHERE stream = p_stream ORDER BY version DESC LIMIT 1), 0)
$$;

-- The `state` of a head, with the time of the append in place of each \x01. A raw control character cannot
-- occur in JSON text, so a user's text cannot contain it.
CREATE OR REPLACE FUNCTION stamped(p_state text, p_at timestamptz) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT replace(p_state, E'\x01',
                   replace(to_char(p_at AT TIME ZONE 'UTC', '"\""YYYY-MM-DD"T"HH24:MI:SS.US"Z\""'), '.000000Z', 'Z'))::jsonb
$$;

-- Set a head's version from the events, its state unknown, after an append without heads.
CREATE OR REPLACE FUNCTION heal_head(p_stream text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    truth bigint := last_version(p_stream);
BEGIN
    UPDATE heads SET version = truth, state_version = 0, state = NULL, state_schema = NULL, status = NULL
     WHERE stream = p_stream;
    DELETE FROM heads WHERE stream = p_stream AND version = 0;
    RETURN truth;
END $$;

-- The rules of a head after an append, the same in every function that appends. append_one, which knows that the head was
-- not behind its events, needs only their short form. All are inlined.

-- The status: p_status, if the append says one, else the one before; of a head that was behind its events none is known.
CREATE OR REPLACE FUNCTION status_after(p_head_version bigint, p_head_status text, p_version bigint, p_status text)
RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_head_version < p_version THEN p_status ELSE coalesce(p_status, p_head_status) END
$$;

-- The lease token: p_set_token, if the append says one; 0 clears it.
CREATE OR REPLACE FUNCTION token_after(p_token bigint, p_set_token bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_set_token IS NULL THEN p_token ELSE nullif(p_set_token, 0) END
$$;

-- Whether the head takes over the append's state: it was folded from the version to which the append was made. Otherwise
-- the head keeps the state that it has, and readers fold the rest.
CREATE OR REPLACE FUNCTION takes_state(p_state text, p_base bigint, p_version bigint) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT p_state IS NOT NULL AND coalesce(p_base = p_version, false)
$$;

-- Make heads for those of the streams that have none, in the order of their names, as lock_heads wants it; returns these.
-- An append that does not write them in the end removes them again: it leaves a head only where it writes one.
CREATE OR REPLACE FUNCTION ensure_heads(p_streams text[]) RETURNS SETOF text LANGUAGE sql AS $$
    INSERT INTO heads (stream, version)
    SELECT s, last_version(s) FROM unnest(p_streams) s
     WHERE NOT EXISTS (SELECT FROM heads h WHERE h.stream = s)
     ORDER BY s COLLATE "C"
    ON CONFLICT DO NOTHING
    RETURNING stream
$$;

-- Lock the heads of streams, made before, in the order of their names, so that two appends of many cannot deadlock.
-- A stream that is only checked (not in p_changed) is locked FOR SHARE: several appends may check it at once.
CREATE OR REPLACE FUNCTION lock_heads(p_streams text[], p_changed boolean[]) RETURNS SETOF heads LANGUAGE plpgsql AS $$
DECLARE
    wanted record;
    head heads;
BEGIN
    IF NOT false = ANY (p_changed) THEN
        RETURN QUERY SELECT h.* FROM heads h WHERE h.stream = ANY (p_streams) ORDER BY h.stream FOR NO KEY UPDATE;
        RETURN;
    END IF;
    FOR wanted IN SELECT * FROM unnest(p_streams, p_changed) u (stream, changed) ORDER BY u.stream COLLATE "C" LOOP
        IF wanted.changed THEN
            SELECT h.* INTO head FROM heads h WHERE h.stream = wanted.stream FOR NO KEY UPDATE;
        ELSE
            SELECT h.* INTO head FROM heads h WHERE h.stream = wanted.stream FOR SHARE;
        END IF;
        RETURN NEXT head;
    END LOOP;
END $$;

-- The heads of all streams under a prefix; of one stream, where it does not end with /: only NUL, which no
-- text can contain, would sort between a name and name || \x01. A separate function, so that the planner sees
-- a range between two values: for a range that comes from a join it expects a ninth of all heads, and reads
-- all of them.
CREATE OR REPLACE FUNCTION heads_below(p_prefix text) RETURNS SETOF heads
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    IF p_prefix LIKE '%/' THEN
        RETURN QUERY SELECT * FROM heads h
                      WHERE h.stream >= p_prefix COLLATE "C" AND h.stream < p_prefix || U&'\+10FFFF' COLLATE "C";
    ELSE
        RETURN QUERY SELECT * FROM heads h WHERE h.stream = p_prefix COLLATE "C";
    END IF;
END $$;
