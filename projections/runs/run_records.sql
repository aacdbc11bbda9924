-- Records of all kinds: flows, deployments, work pools, variables and so on; one row each, its state.
-- {run_records} is the table.

-- name: tables
-- A column holds the field of that name of the record's state, `state` the whole. category: of its stream,
-- which tells the kind. name: its name, key or tag. parent: the id of its flow, work pool, block type or flow
-- run. position: of its first fact; version: of its last one. status: present or deleted.
CREATE TABLE {run_records} (
    position bigint NOT NULL,
    version  bigint NOT NULL,
    created  timestamptz,
    updated  timestamptz,
    status   text   COLLATE "C",
    category text   COLLATE "C" NOT NULL,
    stream   text   COLLATE "C" PRIMARY KEY,
    id       text   COLLATE "C" NOT NULL,
    name     text   COLLATE "C",
    parent   text   COLLATE "C",
    tags     text[] NOT NULL,
    fields   jsonb,
    state    jsonb  NOT NULL
) WITH (fillfactor = 70);

-- name: indexes
-- Those of a kind by id, by name, by what they belong to, by age; those with a tag.
CREATE UNIQUE INDEX ON {run_records} (category, id);
CREATE INDEX ON {run_records} (category, name);
CREATE INDEX ON {run_records} (category, parent) WHERE parent IS NOT NULL;
CREATE INDEX ON {run_records} (category, created);
CREATE INDEX ON {run_records} USING gin (tags) WHERE tags <> '{{}}';

-- name: category
-- The category of the stream.
split_part(s.stream, '/', 1)

-- name: record_name
-- What it is called: an artifact has a key, an old limit a tag.
coalesce(s.state -> 'fields' ->> 'name', s.state -> 'fields' ->> 'key', s.state -> 'fields' ->> 'tag')

-- name: parent
-- What it belongs to.
coalesce(s.state -> 'fields' ->> 'flow_id', s.state -> 'fields' ->> 'work_pool_id',
         s.state -> 'fields' ->> 'block_type_id', s.state -> 'fields' ->> 'flow_run_id')

-- name: tags
-- Its tags; none for a kind that has none.
CASE WHEN jsonb_typeof(s.state -> 'fields' -> 'tags') = 'array'
     THEN ARRAY(SELECT jsonb_array_elements_text(s.state -> 'fields' -> 'tags')) ELSE '{{}}' END

-- name: forget
-- Remove the rows of streams.
DELETE FROM {run_records} WHERE stream IN {streams}
