-- Columns of more than one view that are no fields of the state. s: the row with its stream and its state.

-- name: id
-- The id of the run or record.
split_part(s.stream, '/', 2)

-- name: state_type
-- The type of the state of a run.
s.state -> 'state' ->> 'type'

-- name: state_name
-- The name of the state of a run.
s.state -> 'state' ->> 'name'

-- name: state_timestamp
-- The time of the state of a run.
(s.state -> 'state' ->> 'timestamp')::timestamptz
