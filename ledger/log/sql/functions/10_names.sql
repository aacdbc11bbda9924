-- Names of streams and current states, for a user's own SQL. Like ledger/domain/names.py; a test holds the two equal.

-- A part of a key as it is written in a stream's name.
CREATE OR REPLACE FUNCTION escaped_part(p_part text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN p_part !~ U&'[%/\0001-\001F\007F\+10FFFF]' THEN p_part ELSE (
           SELECT coalesce(string_agg(CASE WHEN c = U&'\+10FFFF' THEN '%U'
                                           WHEN c ~ U&'[%/\0001-\001F\007F]' THEN '%' || upper(lpad(to_hex(ascii(c)), 2, '0'))
                                           ELSE c END, '' ORDER BY i), '')
             FROM string_to_table(p_part, NULL) WITH ORDINALITY t (c, i)) END
$$;

-- The name of the stream with this category and these parts of its key.
CREATE OR REPLACE FUNCTION stream_name(p_category text, VARIADIC p_parts text[] DEFAULT '{}') RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT AS $$
    SELECT array_to_string(p_category || ARRAY(SELECT escaped_part(p) FROM unnest(p_parts) WITH ORDINALITY u (p, i) ORDER BY i), '/')
$$;

-- The category of a stream.
CREATE OR REPLACE FUNCTION category_of(p_stream text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT split_part(p_stream, '/', 1)
$$;

-- The parts of a stream's key, as text.
CREATE OR REPLACE FUNCTION key_of(p_stream text) RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT AS $$
    SELECT ARRAY(SELECT unescaped(p) FROM unnest(string_to_array(p_stream, '/')) WITH ORDINALITY u (p, i)
                  WHERE i > 1 ORDER BY i)
$$;

-- The current state of every stream, as its last append left it. is_current: false where an append came after that
-- kept no state (of another application, or by older code); then the state is that of version `state_version`.
CREATE OR REPLACE VIEW current_state AS
SELECT stream, split_part(stream, '/', 1) AS category, version, status, state, state_version,
       state_version = version AS is_current
  FROM heads;
