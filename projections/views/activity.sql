-- Who recorded how many events on which day: one row per actor, day and category. {activity} is the table.

-- name: tables
-- day: in UTC, as recorded. actor: '' if there is none. events: how many, from first_at to last_at.
CREATE TABLE {activity} (
    first_at timestamptz NOT NULL,
    last_at  timestamptz NOT NULL,
    events   bigint NOT NULL,
    day      date   NOT NULL,
    actor    text   COLLATE "C" NOT NULL,
    category text   COLLATE "C" NOT NULL,
    PRIMARY KEY (day, actor, category)
) WITH (fillfactor = 70);

-- name: apply
-- Count the events of the batch, and add them.
INSERT INTO {activity} AS a (first_at, last_at, events, day, actor, category)
SELECT min(e.recorded_at), max(e.recorded_at), count(*), (e.recorded_at AT TIME ZONE 'UTC')::date,
       coalesce(e.meta ->> 'actor', ''), split_part(e.stream, '/', 1)
  FROM {batch} e GROUP BY 4, 5, 6
ON CONFLICT (day, actor, category) DO UPDATE
   SET first_at = least(a.first_at, excluded.first_at), last_at = greatest(a.last_at, excluded.last_at),
       events = a.events + excluded.events;
