-- Where the named readers of the log stand (store/positions.py). A cursor reads LEDGER:POSITION:MARK.

-- Keep the cursor of a reader. It never goes back in one history: of two processes with one name, the one that is
-- behind changes nothing.
CREATE OR REPLACE FUNCTION keep_position(p_reader text, p_cursor text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    INSERT INTO readers AS r (updated_at, reader, cursor) VALUES (clock_timestamp(), p_reader, p_cursor)
    ON CONFLICT (reader) DO UPDATE SET cursor = excluded.cursor, updated_at = excluded.updated_at
     WHERE split_part(r.cursor, ':', 1) <> split_part(excluded.cursor, ':', 1)
        OR split_part(r.cursor, ':', 2)::bigint < split_part(excluded.cursor, ':', 2)::bigint
$$;

-- Forget where a reader stands, so that it begins anew; whether it stood anywhere.
CREATE OR REPLACE FUNCTION forget_position(p_reader text) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH gone AS (DELETE FROM readers WHERE reader = p_reader RETURNING reader)
    SELECT EXISTS (SELECT FROM gone)
$$;
