-- Tokens of HTTP clients.
-- oldest code: 1

-- Who may use the HTTP server, and as what. hash: the SHA-256 of the token, which itself is stored nowhere.
-- A revoked token keeps its row, so that its name, the actor of its events, is never given to another.
CREATE TABLE tokens (
    added_at   timestamptz NOT NULL,
    revoked_at timestamptz,
    hash       bytea       NOT NULL UNIQUE,
    name       text        COLLATE "C" PRIMARY KEY,
    role       text        COLLATE "C" NOT NULL CHECK (role IN ('reader', 'operator', 'admin')),
    added_by   text        NOT NULL
);
