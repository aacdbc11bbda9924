-- Readers of values in bodies and meta, which may contain anything: no value makes these functions fail.

-- The time that an event claims, where it is one with an offset, as Meta.read has it; else null.
CREATE OR REPLACE FUNCTION claimed_time(p_meta jsonb) RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN p_meta ->> 'claimed_at' ~ ('^(?!000[01]|9999)'
                  '(?:\d{4}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)'
                  '|(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)'
                  '[T ](?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:[.]\d{1,9})?)?'
                  '(?:Z|[+-](?:0\d|1[0-5])(?::[0-5]\d(?::[0-5]\d)?)?)$')
                THEN (p_meta ->> 'claimed_at')::timestamptz END
$$;

-- A whole number that a field of a body or a state holds; 0 where it holds none.
CREATE OR REPLACE FUNCTION whole_number(p_data jsonb, p_field text) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN p_data ->> p_field ~ '^[0-9]{1,9}$' THEN (p_data ->> p_field)::integer ELSE 0 END
$$;
