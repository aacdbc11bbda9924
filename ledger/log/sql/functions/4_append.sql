-- The append. One call is one durable transaction. Conflicts and repeated commands are RETURNED, not raised,
-- so that the user's surrounding transaction stays usable. Locks are always taken in the same order: command,
-- heads by stream name, events by (stream, version); so two appends cannot deadlock.
--
-- expected: n >= 1 exactly this version; 0 the stream is new; -1 any; -2 the stream exists; -3 the guard.

-- Make the commit of an append durable, whatever the session's settings are.
CREATE OR REPLACE FUNCTION be_durable() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END $$;

-- What every append does before it takes a position: it becomes durable and is marked. Called where the session
-- is not durable by itself, or the transaction has written before.
CREATE OR REPLACE FUNCTION begin_further_append() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    place CONSTANT bigint := mark_place();
BEGIN
    PERFORM be_durable();
    RETURN mark(place);
END $$;

-- The same for every append, as a condition that always holds. In the WHERE of the first statement it costs less
-- than a statement of its own. Inlined.
CREATE OR REPLACE FUNCTION begin_append() RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN pg_current_xact_id_if_assigned() IS NULL AND current_setting('synchronous_commit') = 'on'
                THEN mark_alone() ELSE begin_further_append() END IS NOT NULL
$$;

-- What a command id recorded. The lock makes a second call with the same id wait until the first ends.
CREATE OR REPLACE FUNCTION recorded_by(p_command text, p_digest bytea, OUT outcome text, OUT first_position bigint,
                                       OUT last_position bigint, OUT recorded_at timestamptz)
LANGUAGE plpgsql AS $$
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

-- Whether the events of an append are in order: for each stream, nth ascends by one from 1 up to its count. A
-- loop costs less than a sort.
CREATE OR REPLACE FUNCTION in_their_places(p_counts integer[], p_of integer[], p_nth integer[]) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    reached integer[] := array_fill(0, ARRAY[cardinality(p_counts)]);
    stream integer;
BEGIN
    FOR i IN 1 .. cardinality(p_of) LOOP
        stream := p_of[i];
        IF (p_nth[i] = reached[stream] + 1) IS NOT TRUE THEN
            RETURN false;
        END IF;
        reached[stream] := p_nth[i];
    END LOOP;
    RETURN reached = p_counts;
END $$;

-- Why an append is refused: conflict or guard; null where what it expects holds. p_version: the stream's, 0 where it has
-- no event. p_head_version, p_status, p_token: its head's, for a guard; a head behind its events guards nothing. The rule
-- of every function that appends; append_one has its short form in the WHERE of its statements. Inlined.
CREATE OR REPLACE FUNCTION refusal(
    p_expected bigint, p_wanted text[], p_wanted_token bigint,
    p_version bigint, p_head_version bigint, p_status text, p_token bigint)
RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_expected >= 0 AND p_version <> p_expected OR p_expected IN (-2, -3) AND p_version = 0 THEN 'conflict'
                WHEN p_expected = -3 AND (p_head_version < p_version OR NOT coalesce(p_status, '') = ANY (p_wanted)
                     OR p_wanted_token IS NOT NULL AND p_wanted_token IS DISTINCT FROM p_token) THEN 'guard' END
$$;

-- Append events to one or many streams, all or nothing, with any expectation.
--
-- p_streams: [{stream, expected, head, count, wanted?, token?, status?, base?, schema?, set_token?}], sorted by
--   stream. wanted, token: the guard. base: the version that the state of p_states was folded from; where the
--   stream has moved on since (`any`, guard), the head keeps its older state and readers fold the rest.
--   set_token: a new lease token, 0 to clear it. count 0: only checked, nothing appended.
-- Events as arrays: of (index into p_streams, from 1), nth (place within its stream, from 1), and so on;
--   p_metas overrides p_meta event by event.
-- A writer may pass anything, so the arguments are not trusted: of, nth and count are compared with each
-- other, so that versions ascend by one, with their positions, and no head is ahead of its events. For one
-- stream this costs nothing, because an event that is out of order is not inserted.
-- outcome: recorded | conflict | guard | repeated | reused. versions: before the append, in p_streams' order.
-- refused: the stream that caused the refusal; found_*: its version, status and token.
--
-- Its plans are made once per session, often while the ledger is small. Without the settings they would read
-- all heads, and each append of an import into a new ledger would take longer than the one before.
CREATE OR REPLACE FUNCTION append_many(
    p_streams jsonb, p_states text[], p_of integer[], p_nth integer[], p_topics text[], p_schemas smallint[],
    p_datas text[], p_raws bytea[], p_metas text[], p_meta jsonb, p_command text, p_digest bytea,
    OUT outcome text, OUT first_position bigint, OUT recorded_at timestamptz, OUT versions bigint[],
    OUT refused text, OUT found_version bigint, OUT found_status text, OUT found_token bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off AS $$
DECLARE
    n CONSTANT integer := cardinality(p_of);
    misfit CONSTANT text := 'append_many wants events, each stream once with what is expected of it, whether it has a head, '
                            'and the count of its events, and each event in its place: nth from 1 up to that count';
    last_position bigint;
    place bigint;
    names text[];
    headed boolean[];
    changed boolean[];
    written_heads text[];  -- the streams whose heads are written
    made text[];           -- the heads that were made to be locked
    counts integer[];
    fits boolean;
    written bigint;
    attempts integer := 0;
BEGIN
    PERFORM be_durable();
    IF p_command IS NOT NULL THEN
        SELECT r.outcome, r.first_position, r.last_position, r.recorded_at
          INTO outcome, first_position, last_position, recorded_at
          FROM recorded_by(p_command, p_digest) r;
        IF outcome IS NOT NULL THEN
            versions := (SELECT array_agg(coalesce(e.before, 0) ORDER BY s.i)
                           FROM jsonb_array_elements(p_streams) WITH ORDINALITY s (spec, i)
                           LEFT JOIN (SELECT stream, min(version) - 1 AS before FROM events
                                       WHERE position BETWEEN append_many.first_position AND last_position
                                       GROUP BY stream) e ON e.stream = s.spec->>'stream');
            RETURN;
        END IF;
    END IF;
    SELECT array_agg(s.stream ORDER BY s.i), array_agg(s.count > 0 ORDER BY s.i),
           array_agg(s.head OR s.expected = -3 OR s.count = 0 ORDER BY s.i), array_agg(s.count ORDER BY s.i),
           array_agg(s.stream) FILTER (WHERE s.head AND s.count > 0),
           sum(s.count) = n AND bool_and(coalesce(s.count >= 0 AND s.expected >= -3 AND s.head IS NOT NULL, false))
      INTO names, changed, headed, counts, written_heads, fits
      FROM ROWS FROM (jsonb_to_recordset(p_streams) AS (stream text, expected bigint, head boolean, count integer))
           WITH ORDINALITY s (stream, expected, head, count, i);
    IF fits AND n > 0 AND cardinality(names) > 1 THEN
        fits := in_their_places(counts, p_of, p_nth);
    END IF;
    IF n = 0 OR fits IS NOT TRUE THEN
        RAISE SQLSTATE '22023' USING MESSAGE = misfit;
    END IF;
    place := mark_place();
    PERFORM mark(place);
    LOOP
        BEGIN
            attempts := attempts + 1;
            made := ARRAY(SELECT ensure_heads((SELECT array_agg(u.name) FROM unnest(names, headed) u (name, head) WHERE u.head)));
            SELECT array_agg(greatest(h.version, last_version(s.stream)) ORDER BY s.i)
              INTO versions
              FROM unnest(names) WITH ORDINALITY s (stream, i)
              LEFT JOIN lock_heads(
                   (SELECT array_agg(u.name) FROM unnest(names, headed) u (name, head) WHERE u.head),
                   (SELECT array_agg(u.changes) FROM unnest(changed, headed) u (changes, head) WHERE u.head)) h
                   ON h.stream = s.stream;
            IF cardinality(versions) <> cardinality(names) THEN -- a stream is named twice
                RAISE SQLSTATE '22023' USING MESSAGE = misfit;
            END IF;
            SELECT s.stream, v.version, h.status, h.token, r.reason
              INTO refused, found_version, found_status, found_token, outcome
              FROM ROWS FROM (jsonb_to_recordset(p_streams)
                   AS (stream text, expected bigint, wanted text[], token bigint)) WITH ORDINALITY
                   s (stream, expected, wanted, token, i)
              JOIN unnest(versions) WITH ORDINALITY v (version, i) USING (i)
              LEFT JOIN heads h ON h.stream = s.stream AND s.expected = -3
             CROSS JOIN LATERAL refusal(s.expected, s.wanted, s.token, v.version, h.version, h.status, h.token) r (reason)
             WHERE r.reason IS NOT NULL
             ORDER BY i LIMIT 1;
            IF FOUND THEN
                RAISE SQLSTATE 'LG002';
            END IF;
            recorded_at := clock_timestamp();
            first_position := take_block(n);
            IF first_position + n - 1 > 281474976710655 THEN
                PERFORM refuse_last_position();
            END IF;
            INSERT INTO events (position, recorded_at, version, schema, stream, topic, data, raw, meta)
            SELECT append_many.first_position + e.i - 1, append_many.recorded_at, s.version + e.nth, e.schema, s.stream,
                   e.topic, e.data::jsonb, e.raw, coalesce(e.meta::jsonb, p_meta)
              FROM unnest(p_of, p_nth, p_topics, p_schemas, p_datas, p_raws, p_metas) WITH ORDINALITY
                   e (of, nth, topic, schema, data, raw, meta, i)
              JOIN unnest(names, versions) WITH ORDINALITY s (stream, version, i) ON s.i = e.of
             WHERE e.nth = e.i OR cardinality(names) > 1
             ORDER BY e.of, e.i
            ON CONFLICT ON CONSTRAINT events_stream_version DO NOTHING;
            GET DIAGNOSTICS written = ROW_COUNT;
            IF written <> n THEN -- an append without heads came between: check again
                IF NOT in_their_places(counts, p_of, p_nth) OR cardinality(names) <> (
                        SELECT count(DISTINCT name) FROM unnest(names) name) THEN -- no: wrong arguments
                    RAISE SQLSTATE '22023' USING MESSAGE = misfit;
                END IF;
                RAISE SQLSTATE 'LG004';
            END IF;
            UPDATE heads h
               SET version = s.version + s.count,
                   status = status_after(h.version, h.status, s.version, s.status),
                   token = token_after(h.token, s.set_token),
                   state = CASE WHEN s.fits THEN stamped(s.state, append_many.recorded_at) ELSE h.state END,
                   state_version = CASE WHEN s.fits THEN s.version + s.count ELSE h.state_version END,
                   state_schema = CASE WHEN s.fits THEN s.schema ELSE h.state_schema END
              FROM (SELECT t.*, v.version, p_states[t.i] AS state, takes_state(p_states[t.i], t.base, v.version) AS fits
                      FROM ROWS FROM (jsonb_to_recordset(p_streams) AS (stream text, head boolean, count integer,
                           status text, base bigint, schema integer, set_token bigint)) WITH ORDINALITY
                           t (stream, head, count, status, base, schema, set_token, i)
                      JOIN unnest(versions) WITH ORDINALITY v (version, i) USING (i)) s
             WHERE h.stream = s.stream AND s.head AND s.count > 0;
            IF NOT made <@ coalesce(written_heads, '{}') THEN
                DELETE FROM heads h WHERE h.stream = ANY (made) AND NOT h.stream = ANY (coalesce(written_heads, '{}'));
            END IF;
            IF p_command IS NOT NULL THEN
                INSERT INTO commands (command, digest, first_position, last_position, recorded_at)
                VALUES (p_command, p_digest, first_position, first_position + n - 1, recorded_at);
            END IF;
            outcome := 'recorded';
            IF has_effects() THEN -- nothing is done as the owner after them: 3_effects.sql says why
                last_position := first_position + n - 1;
                PERFORM apply_effects(first_position, last_position);
            END IF;
            RETURN;
        EXCEPTION
            WHEN SQLSTATE 'LG002' THEN
                first_position := NULL;
                RETURN;
            WHEN SQLSTATE 'LG004' THEN
                IF attempts >= 100 THEN
                    RAISE EXCEPTION 'gave up after % attempts: appends without heads keep coming between', attempts
                        USING ERRCODE = 'serialization_failure';
                END IF;
        END;
    END LOOP;
END $$;
