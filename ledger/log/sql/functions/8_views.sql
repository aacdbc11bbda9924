-- The functions for views: how far to go in one step, the position that commits with it, and what domains
-- announce. The statements of a view itself are in its own file.

-- The next step after a position: the last of at most p_limit events up to the bound, their number, and the
-- bound, which is read before the events, in a separate snapshot. p_known as in bound().
CREATE OR REPLACE FUNCTION next_batch(p_after bigint, p_limit integer, p_known bigint,
                                      OUT last bigint, OUT many bigint, OUT safe bigint)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
    safe := bound(p_known);
    SELECT max(e.position), count(*) INTO last, many
      FROM (SELECT position FROM events WHERE position > p_after ORDER BY position LIMIT p_limit) e
     WHERE e.position <= safe; -- outside, as in the statement read_log
END $$;

-- The number of the last announcement of a status or a set.
CREATE OR REPLACE FUNCTION last_announced() RETURNS integer LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT greatest((SELECT coalesce(max(number), 0) FROM topic_statuses), (SELECT coalesce(max(number), 0) FROM sets))
$$;

-- Move a copy from one position to another, in the transaction that applies the events between them. A second
-- caller waits for the first, finds the position moved, and is refused: each event is applied once.
-- -- `ahead` still contains the positions that the step must leave out, since these are applied after this.
-- -- A copy that needs the statuses of topics (p_statuses) is refused while there are newer announcements; a
-- copy that must be the live one (p_live) is refused as soon as another copy is live, or appends write it.
CREATE OR REPLACE FUNCTION advance_copy(p_view text, p_copy integer, p_from bigint, p_to bigint, p_events bigint,
                                        p_statuses boolean, p_live boolean)
RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    known integer;
BEGIN
    UPDATE view_copies
       SET position = p_to, events = events + p_events, updated_at = clock_timestamp(), error = NULL,
           ahead = CASE WHEN ahead = '{}' THEN ahead ELSE ARRAY(SELECT a FROM unnest(ahead) a WHERE a > p_from) END
     WHERE view = p_view AND copy = p_copy AND position = p_from
    RETURNING announced INTO known;
    IF NOT FOUND OR (p_live AND NOT EXISTS (
           SELECT FROM views WHERE name = p_view AND live = p_copy AND NOT inline)) THEN
        RAISE SQLSTATE 'LG007' USING MESSAGE = format('copy %s of view %s is not at position %s', p_copy, p_view, p_from);
    END IF;
    IF p_statuses AND known < last_announced() THEN
        RAISE SQLSTATE 'LG008' USING MESSAGE = format('copy %s of view %s does not know all that is announced', p_copy, p_view);
    END IF;
END $$;

-- The new parts of an announcement, as described at `announce`: its part and its topic or category.
CREATE OR REPLACE FUNCTION news_of(p_parts jsonb, p_only_new boolean) RETURNS TABLE (part text, name text)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT 'topic', t ->> 0
      FROM jsonb_array_elements(p_parts -> 'topics') t LEFT JOIN topic_statuses m ON m.topic = t ->> 0
     WHERE m.topic IS NULL OR (NOT p_only_new AND (m.status, m.field) IS DISTINCT FROM (t ->> 1, t ->> 2))
    UNION ALL
    SELECT 'set', w.category
      FROM jsonb_populate_recordset(NULL::sets, p_parts -> 'sets') w LEFT JOIN sets s USING (category)
     WHERE s.category IS NULL OR (NOT p_only_new AND to_jsonb(s) - 'number' <> to_jsonb(w) - 'number')
$$;

-- Announce what domains declare; returns the topics and categories that are news. p_parts: `topics`, each [topic, status,
-- field]; `sets`, rows of that table. p_only_new: earlier announcements are not changed. One at a time, so that the
-- numbers of announcements ascend in the order in which they can be seen.
CREATE OR REPLACE FUNCTION announce(p_parts jsonb, p_only_new boolean) RETURNS text[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    next   integer;
    topics text[];
    sets_  text[];
BEGIN
    IF NOT EXISTS (SELECT FROM news_of(p_parts, p_only_new)) THEN
        RETURN '{}';
    END IF;
    LOCK TABLE topic_statuses IN SHARE ROW EXCLUSIVE MODE;
    next := last_announced() + 1;
    SELECT array_agg(name ORDER BY name) FILTER (WHERE part = 'topic'),
           array_agg(name ORDER BY name) FILTER (WHERE part = 'set')
      INTO topics, sets_ FROM news_of(p_parts, p_only_new);

    INSERT INTO topic_statuses (number, topic, status, field)
    SELECT next, t ->> 0, t ->> 1, t ->> 2 FROM jsonb_array_elements(p_parts -> 'topics') t WHERE t ->> 0 = ANY (topics)
    ON CONFLICT (topic) DO UPDATE SET status = excluded.status, field = excluded.field, number = excluded.number;

    DELETE FROM sets WHERE category = ANY (sets_);
    INSERT INTO sets
    SELECT (jsonb_populate_record(NULL::sets, s || jsonb_build_object('number', next))).*
      FROM jsonb_array_elements(p_parts -> 'sets') s WHERE s ->> 'category' = ANY (sets_);

    RETURN ARRAY(SELECT unnest(topics || sets_) ORDER BY 1);
END $$;

-- A part of a stream's key as it was given: `%2F` is `/`, and so on. Plain, so that statements can take it in.
CREATE OR REPLACE FUNCTION unescaped(p_part text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN strpos(p_part, '%') = 0 THEN p_part ELSE (
        SELECT string_agg(CASE WHEN n = 1 THEN piece
                               WHEN piece ~ '^U' THEN U&'\+10FFFF' || substr(piece, 2)
                               WHEN piece ~ '^(0[1-9A-F]|[1-9A-F][0-9A-F])'
                               THEN chr(('x' || substr(piece, 1, 2))::bit(8)::integer) || substr(piece, 3)
                               ELSE '%' || piece END, '' ORDER BY n)
          FROM unnest(string_to_array(p_part, '%')) WITH ORDINALITY AS p (piece, n)) END
$$;
