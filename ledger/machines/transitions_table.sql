-- Reading a table of transitions of another system, by name. Everything in braces is a name, or an expression, of that
-- table `t`, as ledger/machines/transitions_table.py finds them; the parts come first.

-- name: as_it_is
-- A column of whole numbers.
{column}

-- name: as_text
-- A column of anything else.
{column}::text

-- name: as_named_text
-- A number with a point among the further columns: as text it loses nothing.
{column}::text AS {name}

-- name: no_text
-- Where there is no such column.
NULL::text

-- name: not_empty
-- A text, nothing where it is empty.
nullif({column}::text, '')

-- name: as_flag
-- A boolean, or a number for one; some databases store NULL for false.
coalesce({column}::text IN ('true', '1'), false)

-- name: no_flag
-- If no column marks the last row.
NULL::boolean

-- name: as_time
-- A time with its offset.
{column}

-- name: as_time_in
-- A time without one.
({column}::timestamp AT TIME ZONE {zone})

-- name: no_time
-- Where there are no times.
NULL::timestamptz

-- name: as_object
-- Further columns, as one JSON object.
(SELECT to_jsonb(further_columns) FROM (SELECT {columns}) further_columns)::text

-- name: session
-- Let a long reading be long, and be planned to its end.
SELECT set_config('statement_timeout', '0', true), set_config('idle_in_transaction_session_timeout', '0', true),
       set_config('cursor_tuple_fraction', '1', true), set_config('TimeZone', 'UTC', true);

-- name: relation
-- The table or view of this name.
SELECT n.nspname::text, c.relname::text
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.oid = to_regclass(%(table)s) AND c.relkind IN ('r', 'p', 'v', 'm', 'f');

-- name: columns
-- Its columns and their types; of a domain the type that it is made of.
SELECT a.attname::text, format_type(coalesce(nullif(t.typbasetype, 0), t.oid), NULL)
  FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
 WHERE a.attrelid = to_regclass(%(table)s) AND a.attnum > 0 AND NOT a.attisdropped
 ORDER BY a.attnum;

-- name: size
-- How many rows there are.
SELECT count(*) FROM {table};

-- name: faults
-- Rows that cannot become a history, or that contradict each other: which parent, which sort_key, what is wrong; and how
-- many there are in all.
WITH said AS (
    SELECT ARRAY[{texts}] AS parent, num_nulls({parents}) > 0 AS is_orphan, {sort_key}::text AS sort_key,
           {to_state}::text AS to_state, {from_state} AS from_state, {recent} AS recent, {at} AS at,
           count(*) OVER (PARTITION BY {parents}, {sort_key}) AS same,
           count(*) FILTER (WHERE {recent}) OVER (PARTITION BY {parents}) AS recents,
           row_number() OVER back = 1 AS is_last, first_value({sort_key}::text) OVER back AS highest,
           lag({to_state}::text) OVER (PARTITION BY {parents} ORDER BY {sort_key}) AS before
      FROM {table} t
    WINDOW back AS (PARTITION BY {parents} ORDER BY {sort_key} DESC NULLS LAST, {recent} DESC)
)
SELECT parent, sort_key, fault, count(*) OVER ()
  FROM said CROSS JOIN LATERAL (VALUES
       (CASE WHEN is_orphan THEN 'it has no parent' END),
       (CASE WHEN coalesce(to_state, '') = '' THEN 'it has no to_state' END),
       (CASE WHEN sort_key IS NULL THEN 'it has no sort_key' WHEN same > 1 THEN 'another row has the same sort_key' END),
       (CASE WHEN %(timed)s AND at IS NULL THEN 'it has no created_at'
             WHEN at NOT BETWEEN {first} AND {last} THEN 'its created_at cannot be kept' END),
       (CASE WHEN recent AND recents > 1 THEN format('it is one of %%s rows that are most_recent', recents)
             WHEN recent AND NOT is_last THEN format('it is most_recent, but %%s is the highest sort_key', highest)
             WHEN is_last AND recents = 0 AND recent IS NOT NULL THEN 'no row of this parent is most_recent' END),
       (CASE WHEN before <> from_state THEN format('its from_state is %%s, but the row before led to %%s', from_state, before)
             END),
       (CASE WHEN NOT to_state = ANY (%(states)s::text[]) THEN format('%%s is no state of the machine', to_state) END)
       ) f (fault)
 WHERE fault IS NOT NULL
 ORDER BY parent, sort_key LIMIT %(limit)s;

-- name: rows
-- The rows that can become a history, parent by parent, each in the order of its sort_key, whatever its times.
SELECT {to_state}::text, CASE WHEN {at} BETWEEN {first} AND {last} THEN {at} END, {from_state}, {metadata}, {further},
       {sort_key}::text, {keys}
  FROM {table} t
 WHERE num_nulls({parents}, {sort_key}) = 0 AND {to_state}::text <> ''
 ORDER BY {parents}, {sort_key}, {at}, {to_state}::text;
