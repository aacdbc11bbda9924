-- An append that depends on the status of a stream, without opening it: one round trip.

-- Append one event to a stream, as if the stream had been opened, decided on, and appended to at that version.
-- p_choices: what is appended, by the status of the stream's state: {status: [body, the state after it as text]}.
-- p_initial: the status of a stream without events, if any. p_status: the status after the event.
-- outcome: recorded | conflict, as of append_one; or unknown, where the head does not hold the state of all events, or
-- holds a status without a choice: then nothing is recorded, and the stream must be opened. status: the one before.
-- It runs with the rights of its caller, who must be a reader and a writer.
CREATE OR REPLACE FUNCTION append_from(
    p_stream text, p_state_schema integer, p_initial text, p_choices jsonb, p_topic text, p_schema smallint,
    p_status text, p_meta jsonb,
    OUT outcome text, OUT "position" bigint, OUT version bigint, OUT recorded_at timestamptz, OUT status text)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    choice jsonb;
BEGIN
    -- A separate statement: while a head is being read its page cannot be pruned, and heads would grow.
    SELECT h.version, h.state ->> 'status' INTO version, status
      FROM heads h
     WHERE h.stream = p_stream AND h.state_schema = p_state_schema AND h.version = h.state_version
       AND NOT EXISTS (SELECT FROM events e WHERE e.stream = p_stream AND e.version > h.version);
    IF NOT FOUND AND p_initial IS NOT NULL AND NOT EXISTS (SELECT FROM heads h WHERE h.stream = p_stream)
       AND NOT EXISTS (SELECT FROM events e WHERE e.stream = p_stream) THEN
        version := 0;
        status := p_initial;
    END IF;
    choice := p_choices -> status;
    IF choice IS NULL THEN
        outcome := 'unknown';
        RETURN;
    END IF;
    SELECT a.position, a.version, a.recorded_at, a.outcome INTO position, version, recorded_at, outcome
      FROM append_one(p_stream, append_from.version, p_topic, p_schema, choice -> 0, NULL, p_meta, true, p_status, choice ->> 1,
                      p_state_schema) a;
END $$;
