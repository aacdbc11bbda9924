-- Reading the end of a history in one round trip.

-- The newest events of a stream, and of the streams whose names are between two, newest first: those after one
-- position and before another that were recorded after a time, as far as they are safe to read. The bound comes first,
-- and the statement after it has a new snapshot. The events of the stream come by its index, and so many as are
-- wanted; those of the others are all read (OFFSET 0: never by walking the log backwards).
CREATE OR REPLACE FUNCTION newest_events(p_stream text, p_start text, p_end text, p_after bigint, p_since timestamptz,
                                         p_before bigint, p_limit integer)
RETURNS TABLE ("position" bigint, stream text, version bigint, topic text, schema smallint, data text, raw bytea, meta text,
               recorded_at timestamptz)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    upto bigint := least(bound(), p_before - 1);
BEGIN
    RETURN QUERY
    SELECT e.position, e.stream, e.version, e.topic, e.schema, e.data::text, e.raw, e.meta::text, e.recorded_at
      FROM ((SELECT * FROM events j
              WHERE j.stream = p_stream AND j.position > p_after AND j.position <= upto
                AND (p_since IS NULL OR j.recorded_at > p_since)
              ORDER BY j.version DESC LIMIT p_limit)
            UNION ALL
            (SELECT * FROM (SELECT * FROM events b
                             WHERE b.stream > p_start AND b.stream < p_end AND b.position > p_after AND b.position <= upto
                               AND (p_since IS NULL OR b.recorded_at > p_since) OFFSET 0) b
              ORDER BY b.position DESC LIMIT p_limit)) e
     ORDER BY e.position DESC LIMIT p_limit;
END $$;
