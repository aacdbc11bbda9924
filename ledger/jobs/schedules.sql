-- What schedules read. {schema} is the ledger's schema.

-- name: clock
-- The time, by the clock that stamps events.
SELECT clock_timestamp();
