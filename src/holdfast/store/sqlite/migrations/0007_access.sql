-- Who may do what from afar, who did what, and what the dashboard finds by an index.

-- What people did, the oldest first.
CREATE TABLE holdfast_audit_entry (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    via TEXT NOT NULL CHECK (via = 'cli' OR via = 'web' OR via = 'api'),
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    count INTEGER,
    note TEXT
) STRICT;
CREATE INDEX holdfast_audit_entry_when ON holdfast_audit_entry (at);

-- Tokens. Of a secret only its hash is kept; its prefix is public and finds it. Revoked ones stay: their names are in
-- the acts, and a door that was ever locked does not open because its last key is gone.
CREATE TABLE holdfast_credential (
    prefix TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    role TEXT NOT NULL CHECK (role = 'viewer' OR role = 'operator' OR role = 'admin'),
    salt TEXT NOT NULL,
    hash TEXT NOT NULL,
    actor TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    last_used_at INTEGER,
    revoked_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX holdfast_credential_name ON holdfast_credential (name) WHERE revoked_at IS NULL;

-- What all servers of a store share and nobody else may know: it signs sessions.
CREATE TABLE holdfast_secret (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE holdfast_saved_filter (
    name TEXT PRIMARY KEY,
    filter TEXT NOT NULL,
    actor TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Answers to requests that carried a key: the same request is answered once.
CREATE TABLE holdfast_idempotency_key (
    credential TEXT NOT NULL,
    key TEXT NOT NULL,
    digest TEXT NOT NULL,
    status INTEGER,                            -- null: under way
    body TEXT,
    at INTEGER NOT NULL,
    PRIMARY KEY (credential, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_idempotency_key_when ON holdfast_idempotency_key (at);

-- Where a job's trace began: the W3C trace context of whoever enqueued it.
CREATE TABLE holdfast_trace (
    job_id INTEGER PRIMARY KEY,
    context TEXT NOT NULL
) STRICT;

ALTER TABLE holdfast_worker ADD COLUMN slots INTEGER;
-- What a person asks of it; it hears that with its next heartbeat.
ALTER TABLE holdfast_worker ADD COLUMN requested TEXT CHECK (requested = 'quiet' OR requested = 'stop');

-- Units that people look for. Done ones are not in it, so that a run pays nothing for it.
CREATE INDEX holdfast_unit_trouble ON holdfast_unit (batch_id, state, key) WHERE state <> 'done' AND state <> 'pending';
CREATE INDEX holdfast_schedule_paused ON holdfast_schedule (name) WHERE paused;
