-- Batches on workers, and results that are handed over through an inbox.

-- A unit is running while its result waits for a consumer; what else is under way is told by who has it in hand.
CREATE TABLE holdfast_unit_3 (
    batch_id INTEGER NOT NULL,
    key TEXT NOT NULL,
    position INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state = 'done' OR state = 'pending' OR state = 'running' OR state = 'failed'
        OR state = 'skipped' OR state = 'cancelled' OR state = 'in_doubt'),
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
INSERT INTO holdfast_unit_3 (batch_id, key, position, state, run_number, attempts, crashes, poison_suspect, label, warning, error,
    data, duration_ms)
SELECT batch_id, key, position, state, run_number, attempts, crashes, poison_suspect, label, warning, error, data, duration_ms
FROM holdfast_unit;
DROP TABLE holdfast_unit;
ALTER TABLE holdfast_unit_3 RENAME TO holdfast_unit;
CREATE INDEX holdfast_unit_pending ON holdfast_unit (batch_id, position) WHERE state = 'pending';

CREATE INDEX holdfast_batch_running ON holdfast_batch (id) WHERE state = 'running';

-- A result that waits until its consumer has taken and accepted it, or until it expires.
CREATE TABLE holdfast_inbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    inbox TEXT NOT NULL,
    batch_id INTEGER NOT NULL,
    key TEXT NOT NULL,
    data TEXT NOT NULL,
    token INTEGER NOT NULL DEFAULT 0,          -- rises each time it is taken
    available_at INTEGER NOT NULL,                  -- when it may be taken
    expires_at INTEGER NOT NULL,
    UNIQUE (batch_id, key)
) STRICT;
CREATE INDEX holdfast_inbox_free ON holdfast_inbox (inbox, available_at, id);
CREATE INDEX holdfast_inbox_expires ON holdfast_inbox (expires_at);
