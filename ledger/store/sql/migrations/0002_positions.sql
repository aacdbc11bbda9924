-- Where the named readers of the log stand.
-- How far each named reader of the log has come: the cursor after the last event whose effects are recorded. A
-- reader that begins again a little earlier does no harm, so it is written seldom, and never by an append.
CREATE TABLE readers (
    updated_at timestamptz NOT NULL,
    reader     text        COLLATE "C" PRIMARY KEY,
    cursor     text        COLLATE "C" NOT NULL,
    CONSTRAINT readers_cursor CHECK (cursor ~ '^[0-9a-f-]{36}:[0-9]{1,15}:[0-9a-f]*$')
) WITH (fillfactor = 50);
