-- Batches on SQLite: a batch, its units (the ledger), and who has which of them in hand.

CREATE TABLE holdfast_batch (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    identity TEXT NOT NULL,
    generation INTEGER NOT NULL,
    kind TEXT NOT NULL,
    arguments TEXT NOT NULL,
    source TEXT NOT NULL,
    name TEXT,
    state TEXT NOT NULL
        CHECK (state = 'ready' OR state = 'running' OR state = 'done' OR state = 'paused' OR state = 'stopped'
            OR state = 'partial' OR state = 'failed' OR state = 'cancelled'),
    requested TEXT CHECK (requested = 'pause' OR requested = 'cancel'),
    aborted_by TEXT,
    total INTEGER,
    run_number INTEGER NOT NULL DEFAULT 0,         -- how many runs have begun
    version TEXT,
    inputs TEXT,
    code TEXT,
    options TEXT NOT NULL,
    actor TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    finished_at INTEGER,
    UNIQUE (identity, generation)
) STRICT;
CREATE INDEX holdfast_batch_open ON holdfast_batch (id) WHERE state IN ('ready', 'running', 'paused', 'stopped');

-- A row says how a unit finished, or that it waits. Units of a foreground run that were never begun have none.
CREATE TABLE holdfast_unit (
    batch_id INTEGER NOT NULL,
    key TEXT NOT NULL,
    position INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state = 'done' OR state = 'pending' OR state = 'failed' OR state = 'skipped'
        OR state = 'cancelled' OR state = 'in_doubt'),
    run_number INTEGER NOT NULL,                   -- the run of the batch that wrote it last
    attempts INTEGER NOT NULL DEFAULT 0,
    crashes INTEGER NOT NULL DEFAULT 0,
    poison_suspect INTEGER NOT NULL DEFAULT 0,        -- a holder was lost while it had this in hand
    label TEXT,
    warning TEXT,
    error TEXT,
    data TEXT,
    duration_ms INTEGER,
    PRIMARY KEY (batch_id, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_unit_open ON holdfast_unit (batch_id, position) WHERE state <> 'done';

-- What a holder has in hand: the units it runs. The right to it is the lease of its job.
CREATE TABLE holdfast_in_flight (
    job_id INTEGER PRIMARY KEY,
    batch_id INTEGER NOT NULL,
    token INTEGER NOT NULL,
    run_number INTEGER NOT NULL,
    units TEXT NOT NULL,                       -- [[key, position], …]
    isolated INTEGER NOT NULL DEFAULT 0,          -- one poison_suspect unit: if the holder is lost, it was this one
    in_doubt_if_lost INTEGER NOT NULL DEFAULT 0,          -- units of a lost holder are in in_doubt_if_lost, and wait for a person
    owner TEXT NOT NULL
) STRICT;
CREATE INDEX holdfast_in_flight_batch ON holdfast_in_flight (batch_id);

-- One row per holder and name: nobody waits for another's count.
CREATE TABLE holdfast_unit_count (
    batch_id INTEGER NOT NULL,
    job_id INTEGER NOT NULL,
    name TEXT NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (batch_id, job_id, name)
) STRICT, WITHOUT ROWID;
