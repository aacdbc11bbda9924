-- feed.py: {schema} is the ledger's schema, {views} that of its views.

-- name: make_fed
-- The temporary table of events from another source, for the length of a session.
CREATE TEMPORARY TABLE IF NOT EXISTS fed (LIKE {schema}.events);

-- name: empty_fed
-- Remove the events that were passed before.
TRUNCATE pg_temp.fed;

-- name: fill_fed
-- Insert events from another source.
COPY pg_temp.fed (position, stream, version, topic, schema, data, raw, meta, recorded_at) FROM STDIN;

-- name: make_fed_from
-- From which ledger each copy of a view is fed, and where the source stood: its own word for it.
CREATE TABLE IF NOT EXISTS {views}.fed_from (
    view   text    COLLATE "C" NOT NULL,
    copy   integer NOT NULL,
    ledger uuid    NOT NULL,
    place  text    NOT NULL,
    PRIMARY KEY (view, copy)
);

-- name: fed_from
-- The ledger and the place of a copy's source.
SELECT ledger, place FROM {views}.fed_from WHERE view = %(view)s AND copy = %(copy)s;

-- name: note_place
-- Note where the source of a copy stands.
INSERT INTO {views}.fed_from (view, copy, ledger, place)
VALUES (%(view)s, %(copy)s, %(ledger)s, %(place)s)
ON CONFLICT (view, copy) DO UPDATE SET ledger = excluded.ledger, place = excluded.place;

-- name: park_event_as_fed
-- Park a stream from the event on that failed; the event is stored with it as it was passed.
INSERT INTO {schema}.view_parked AS p (view, copy, stream, position, error, event, parked_at)
SELECT %(view)s, %(copy)s, %(stream)s, %(position)s, %(error)s,
       (SELECT to_jsonb(e) FROM pg_temp.fed e WHERE e.position = %(position)s), clock_timestamp()
ON CONFLICT (view, copy, stream) DO UPDATE
   SET position = excluded.position, error = excluded.error, event = excluded.event, tries = p.tries + 1,
       parked_at = excluded.parked_at;
