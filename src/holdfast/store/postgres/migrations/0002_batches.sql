-- Batches on PostgreSQL: a batch, its units (the ledger), and who has which of them in hand.

CREATE TABLE holdfast.batch (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    identity text NOT NULL,
    generation integer NOT NULL,
    kind text NOT NULL,
    arguments json NOT NULL,
    source text NOT NULL,
    name text,
    state text NOT NULL
        CHECK (state IN ('ready', 'running', 'paused', 'stopped', 'done', 'partial', 'failed', 'cancelled')),
    requested text CHECK (requested IN ('pause', 'cancel')),
    aborted_by text,
    total bigint,
    run_number integer NOT NULL DEFAULT 0,         -- how many runs have begun
    version text,
    inputs json,
    code text,
    options json NOT NULL,
    actor text NOT NULL,
    created_at timestamptz NOT NULL,
    started_at timestamptz,
    finished_at timestamptz,
    UNIQUE (identity, generation)
);
CREATE INDEX batch_open ON holdfast.batch (id) WHERE state IN ('ready', 'running', 'paused', 'stopped');

-- A row says how a unit finished, or that it waits. Units of a foreground run that were never begun have none.
CREATE TABLE holdfast.unit (
    batch_id bigint NOT NULL,
    key text NOT NULL,
    position bigint NOT NULL,
    state text NOT NULL CHECK (state IN ('pending', 'done', 'failed', 'skipped', 'cancelled', 'in_doubt')),
    run_number integer NOT NULL,                   -- the run of the batch that wrote it last
    attempts integer NOT NULL DEFAULT 0,
    crashes integer NOT NULL DEFAULT 0,
    poison_suspect boolean NOT NULL DEFAULT false,    -- a holder was lost while it had this in hand
    label text,
    warning text,
    error text,
    data json,
    duration_ms bigint,
    PRIMARY KEY (batch_id, key)
) WITH (fillfactor = 90);
CREATE INDEX unit_open ON holdfast.unit (batch_id, position) WHERE state <> 'done';

-- What a holder has in hand: the units it runs. The right to it is the lease of its job.
CREATE TABLE holdfast.in_flight (
    job_id bigint PRIMARY KEY,
    batch_id bigint NOT NULL,
    token bigint NOT NULL,
    run_number integer NOT NULL,
    units json NOT NULL,                       -- [[key, position], …]
    isolated boolean NOT NULL DEFAULT false,      -- one poison_suspect unit: if the holder is lost, it was this one
    in_doubt_if_lost boolean NOT NULL DEFAULT false,      -- units of a lost holder are in in_doubt_if_lost, and wait for a person
    owner json NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX in_flight_batch ON holdfast.in_flight (batch_id);

-- One row per holder and name: nobody waits for another's count.
CREATE TABLE holdfast.unit_count (
    batch_id bigint NOT NULL,
    job_id bigint NOT NULL,
    name text NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (batch_id, job_id, name)
) WITH (fillfactor = 70);
