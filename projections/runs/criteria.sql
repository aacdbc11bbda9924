-- Conditions of filters, and what they compare. {table} is the alias of a row, {column} what is compared,
-- {value} a parameter, {views} the schema of the views.

-- name: column
-- A column of the row.
{table}.{name}

-- name: field
-- A field of a record, as text.
({table}.fields ->> {name})

-- name: flag_field
-- A field of a record that is true or false; one that is missing is false.
coalesce(({table}.fields ->> {name})::boolean, false)

-- name: time_field
-- A field of a record that is a time.
({table}.fields ->> {name})::timestamptz

-- name: number_field
-- A field of a record that is a number.
({table}.fields ->> {name})::numeric

-- name: block_type_name
-- The name of the type of a block.
(SELECT o.name FROM {views}.run_records o WHERE o.category = 'block_type' AND o.id = {table}.parent)

-- name: list_field
-- A field of a record that is a list.
({table}.fields -> {name})

-- name: began
-- When a flow run began, or is expected to begin.
coalesce({table}.start_time, {table}.expected_start_time)

-- name: creator
-- A field of what created a flow run.
({table}.created_by ->> {name})

-- name: one_of
-- One of these texts.
{column} = ANY ({value}::text[])

-- name: none_of
-- None of these texts; nothing is not one of them, and is left out as well.
{column} <> ALL ({value}::text[])

-- name: one_prefix_of
-- It begins with one of these texts, in upper or lower case.
{column} ILIKE ANY ({value}::text[])

-- name: is_like
-- It contains a text, in upper or lower case; % and _ stand for any characters.
{column} ILIKE {value}

-- name: is_nothing
-- Whether it is nothing.
({column} IS NULL) = {value}

-- name: is_there
-- Whether it is something.
({column} IS NOT NULL) = {value}

-- name: is_that
-- It is true, or false.
{column} = {value}

-- name: at_least
-- Not before a time, not below a number.
{column} >= {value}

-- name: at_most
-- Not after a time, not above a number.
{column} <= {value}

-- name: all_tags
-- It has all of these tags.
{column} @> {value}::text[]

-- name: any_tag
-- It has one of these tags.
{column} && {value}::text[]

-- name: no_tags
-- Whether it has no tags.
({column} = '{{}}') = {value}

-- name: all_items
-- A list with all of these texts in it.
{column} @> to_jsonb({value}::text[])

-- name: has_not_begun
-- Whether it has not begun.
({table}.start_time IS NULL) = {value}

-- name: child_of_one
-- A subflow: its parent task run belongs to one of these flow runs.
{table}.parent_task_run_id IN (SELECT o.id FROM {views}.task_runs o WHERE o.flow_run_id = ANY ({value}::text[]))

-- name: stands_for_subflow
-- Whether a task run stands for a subflow.
EXISTS (SELECT FROM {views}.flow_runs o WHERE o.parent_task_run_id = {table}.id AND o.status <> 'deleted') = {value}

-- name: is_not_deployed
-- Whether a flow has no deployment.
(NOT EXISTS (SELECT FROM {views}.run_records o WHERE o.category = 'deployment' AND o.parent = {table}.id AND o.status = 'present')) = {value}

-- name: own_or_flow_is_like
-- The name of a deployment, or that of its flow, contains a text.
({table}.name ILIKE {value} OR EXISTS (
    SELECT FROM {views}.run_records o WHERE o.category = 'flow' AND o.id = {table}.parent AND o.name ILIKE {value} AND o.status = 'present'))

-- name: exists_in
-- A row of another kind that goes with this one, and fulfils its own conditions.
EXISTS (SELECT FROM {other} WHERE {conditions})

-- name: no_condition
-- A criterion that Prefect takes and ignores.
({value})::text IS NOT DISTINCT FROM ({value})::text
