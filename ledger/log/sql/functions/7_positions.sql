-- The positions of the named readers of the log (ledger/log/readers.py). A cursor is LEDGER:POSITION:MARK.

-- Store the cursor of a reader. It never goes back within one history: if two processes have one name, the
-- one that is behind changes nothing.
CREATE OR REPLACE FUNCTION keep_position(p_reader text, p_cursor text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    INSERT INTO readers AS r (updated_at, reader, cursor) VALUES (clock_timestamp(), p_reader, p_cursor)
    ON CONFLICT (reader) DO UPDATE SET cursor = excluded.cursor, updated_at = excluded.updated_at
     WHERE split_part(r.cursor, ':', 1) <> split_part(excluded.cursor, ':', 1)
        OR split_part(r.cursor, ':', 2)::bigint < split_part(excluded.cursor, ':', 2)::bigint
$$;

-- Delete the position of a reader, so that it starts again with all streams; returns whether it had one.
CREATE OR REPLACE FUNCTION forget_position(p_reader text) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    DELETE FROM reader_parked WHERE reader = p_reader;
    WITH gone AS (DELETE FROM readers WHERE reader = p_reader RETURNING reader)
    SELECT EXISTS (SELECT FROM gone)
$$;

-- Park a stream for a reader, from an event on which it failed. If two processes have one name, the one that
-- is behind may fail on an earlier event, which then counts.
CREATE OR REPLACE FUNCTION park_stream(p_reader text, p_stream text, p_position bigint, p_error text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    INSERT INTO reader_parked AS p (position, parked_at, reader, stream, error)
    VALUES (p_position, clock_timestamp(), p_reader, p_stream, p_error)
    ON CONFLICT (reader, stream) DO UPDATE
       SET position = CASE WHEN p.again THEN excluded.position ELSE least(p.position, excluded.position) END,
           error = excluded.error, parked_at = excluded.parked_at, tries = p.tries + 1, again = false
$$;

-- Request that a reader retries a stream (null: all that it parked); returns how many.
CREATE OR REPLACE FUNCTION retry_parked(p_reader text, p_stream text) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH asked AS (UPDATE reader_parked SET again = true
                    WHERE reader = p_reader AND (p_stream IS NULL OR stream = p_stream) RETURNING stream)
    SELECT count(*) FROM asked
$$;

-- Release a parked stream to its reader; does nothing if it was parked again meanwhile.
CREATE OR REPLACE FUNCTION release_parked(p_reader text, p_stream text, p_position bigint) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    DELETE FROM reader_parked WHERE reader = p_reader AND stream = p_stream AND position = p_position AND again
$$;
