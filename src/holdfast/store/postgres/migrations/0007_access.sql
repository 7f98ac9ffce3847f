-- Who may do what from afar, who did what, and what the dashboard finds by an index.

-- What people did, the oldest first.
CREATE TABLE holdfast.audit_entry (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL,
    actor text NOT NULL,
    via text NOT NULL CHECK (via IN ('cli', 'web', 'api')),
    action text NOT NULL,
    target text NOT NULL,
    count bigint,
    note text
);
CREATE INDEX audit_entry_when ON holdfast.audit_entry (at);

-- Tokens. Of a secret only its hash is kept; its prefix is public and finds it. Revoked ones stay: their names are in
-- the acts, and a door that was ever locked does not open because its last key is gone.
CREATE TABLE holdfast.credential (
    prefix text PRIMARY KEY,
    name text NOT NULL,
    role text NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    salt text NOT NULL,
    hash text NOT NULL,
    actor text NOT NULL,
    created_at timestamptz NOT NULL,
    last_used_at timestamptz,
    revoked_at timestamptz
);
CREATE UNIQUE INDEX credential_name ON holdfast.credential (name) WHERE revoked_at IS NULL;

-- What all servers of a store share and nobody else may know: it signs sessions.
CREATE TABLE holdfast.secret (
    name text PRIMARY KEY,
    value text NOT NULL,
    created_at timestamptz NOT NULL
);

CREATE TABLE holdfast.saved_filter (
    name text PRIMARY KEY,
    filter text NOT NULL,
    actor text NOT NULL,
    created_at timestamptz NOT NULL
);

-- Answers to requests that carried a key: the same request is answered once.
CREATE TABLE holdfast.idempotency_key (
    credential text NOT NULL,
    key text NOT NULL,
    digest text NOT NULL,
    status integer,                            -- null: under way
    body text,
    at timestamptz NOT NULL,
    PRIMARY KEY (credential, key)
);
CREATE INDEX idempotency_key_when ON holdfast.idempotency_key (at);

-- Where a job's trace began: the W3C trace context of whoever enqueued it.
CREATE TABLE holdfast.trace (
    job_id bigint PRIMARY KEY,
    context text NOT NULL
);

ALTER TABLE holdfast.worker ADD COLUMN slots integer;
-- What a person asks of it; it hears that with its next heartbeat.
ALTER TABLE holdfast.worker ADD COLUMN requested text CHECK (requested IN ('quiet', 'stop'));

-- Units that people look for. Done ones are not in it, so that a run pays nothing for it.
CREATE INDEX unit_trouble ON holdfast.unit (batch_id, state, key) WHERE state <> 'done' AND state <> 'pending';
CREATE INDEX schedule_paused ON holdfast.schedule (name) WHERE paused;
