-- prefect_events.py: {schema} is the ledger's schema. What a fact says as an event of Prefect: its name, its id,
-- when it happened. A state of a task run that no client reported has none.

-- name: page
-- The next facts that may be events which a filter includes, in the order of the log or backwards.
SELECT e.position, e.stream, e.version, e.topic, e.schema, e.data::text, e.raw, e.meta::text, e.recorded_at
  FROM {schema}.events e
 WHERE e.topic = ANY (%(topics)s::text[]) AND e.position > %(after)s AND e.position < %(before)s AND ({wanted})
 ORDER BY e.position {way} LIMIT %(limit)s

-- name: count
-- How many such facts there are.
SELECT count(*) FROM {schema}.events e WHERE e.topic = ANY (%(topics)s::text[]) AND ({wanted})

-- name: position_before
-- The last event recorded before a time, looked for from the end of the log backwards.
SELECT e.position FROM {schema}.events e WHERE e.recorded_at < %(at)s ORDER BY e.position DESC LIMIT 1

-- name: is_event
-- It has an event: a client reported it, or it offers a background task to workers.
(e.topic <> 'task_run.state_set' OR (e.data ->> 'reported')::boolean
 OR (e.data ->> 'status' = 'scheduled' AND (e.data -> 'state' -> 'state_details' ->> 'deferred')::boolean))

-- name: of_streams
-- Of one of these streams.
e.stream = ANY (%(streams)s::text[])

-- name: event_name
-- Its name.
CASE WHEN e.topic = 'flow_run.state_set' THEN 'prefect.flow-run.' || (e.data -> 'state' ->> 'name')
     WHEN e.topic = 'run_event.received' THEN e.data ->> 'event'
     ELSE 'prefect.task-run.' || (e.data -> 'state' ->> 'name') END

-- name: named
-- It has one of these names.
{name} = ANY (%(names)s::text[])

-- name: not_named
-- It has none of these names.
{name} <> ALL (%(excluded)s::text[])

-- name: named_from
-- Its name begins with one of these texts.
{name} LIKE ANY (%(prefixes)s::text[])

-- name: not_named_from
-- Its name begins with none of these texts.
NOT ({name} LIKE ANY (%(excluded_prefixes)s::text[]))

-- name: with_ids
-- It has one of these ids.
coalesce(e.data -> 'state' ->> 'id', e.data ->> 'id') = ANY (%(ids)s::text[])

-- name: since
-- It happened at a time or later.
coalesce((e.data -> 'state' ->> 'timestamp')::timestamptz, (e.data ->> 'occurred')::timestamptz, e.recorded_at) >= %(since)s

-- name: until
-- It happened at a time or earlier.
coalesce((e.data -> 'state' ->> 'timestamp')::timestamptz, (e.data ->> 'occurred')::timestamptz, e.recorded_at) <= %(until)s
