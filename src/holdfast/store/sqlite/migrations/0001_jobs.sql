-- Jobs on SQLite: the same tables as on PostgreSQL, prefixed, so that they may live in the
-- user's own file. Instants and durations are integers, in microseconds (UTC).

-- Closed sets are spelt with OR, the most frequent word first: for a list after IN, SQLite builds a table
-- anew at every row, which costs more than the row.

CREATE TABLE holdfast_meta (
    single_row INTEGER PRIMARY KEY DEFAULT 1 CHECK (single_row = 1),
    installation TEXT NOT NULL DEFAULT (lower(hex(randomblob(16)))),
    version INTEGER NOT NULL,
    oldest_code INTEGER NOT NULL,
    last_job_id INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE holdfast_kind (
    name TEXT PRIMARY KEY,
    options TEXT NOT NULL,
    payload_schema TEXT NOT NULL,
    version TEXT,
    published_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE holdfast_queue (
    name TEXT PRIMARY KEY,
    run_limit INTEGER CHECK (run_limit > 0),
    worker_limit INTEGER CHECK (worker_limit > 0),
    paused INTEGER NOT NULL DEFAULT 0,
    note TEXT
) STRICT, WITHOUT ROWID;

CREATE TABLE holdfast_worker (
    id TEXT PRIMARY KEY,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    version TEXT,
    queues TEXT NOT NULL,
    kinds TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    seen_at INTEGER NOT NULL,
    stopped_at INTEGER
) STRICT, WITHOUT ROWID;

-- What was asked.
CREATE TABLE holdfast_job (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    payload TEXT NOT NULL CHECK (json_valid(payload)),
    label TEXT,
    tags TEXT,
    key TEXT,
    parent_id INTEGER,
    actor TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    max_attempts INTEGER,
    max_crashes INTEGER,
    on_lost TEXT NOT NULL CHECK (on_lost = 'retry' OR on_lost = 'dead' OR on_lost = 'hold'),
    retry TEXT,
    after_when TEXT CHECK (after_when = 'done' OR after_when = 'finished' OR after_when = 'failed'),
    after_failed TEXT CHECK (after_failed = 'cancel' OR after_failed = 'hold')
) STRICT;
CREATE INDEX holdfast_job_label ON holdfast_job (label, id) WHERE label IS NOT NULL;
CREATE INDEX holdfast_job_key ON holdfast_job (key, id) WHERE key IS NOT NULL;

-- Where it stands.
CREATE TABLE holdfast_live (
    id INTEGER PRIMARY KEY,
    state TEXT NOT NULL CHECK (state = 'ready' OR state = 'running' OR state = 'held' OR state = 'waiting' OR state = 'scheduled'),
    queue TEXT NOT NULL,
    kind TEXT NOT NULL,
    priority INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    crashes INTEGER NOT NULL DEFAULT 0,
    token INTEGER NOT NULL DEFAULT 0,
    no_prefetch INTEGER NOT NULL DEFAULT 0,        -- never prefetched, every start started: on_lost, or poison_suspect
    poison_suspect INTEGER NOT NULL DEFAULT 0,        -- its last holder was lost before a started start
    has_dependents INTEGER NOT NULL DEFAULT 0,         -- other jobs may wait for it
    requested TEXT CHECK (requested = 'cancel' OR requested = 'pause'),  -- what a person asks of its holder
    worker TEXT,
    claimed_at INTEGER,
    started_at INTEGER,                        -- the start mark: from here on a loss costs an attempt
    lease_expires_at INTEGER,
    note TEXT,
    CHECK ((state = 'running') = (lease_expires_at IS NOT NULL)),
    CHECK ((state = 'running') = (worker IS NOT NULL)),
    CHECK ((state = 'running') = (claimed_at IS NOT NULL)),
    CHECK (state = 'running' OR started_at IS NULL)
) STRICT;
-- The claim reads this index and nothing else: only ready jobs are in it, in their order.
CREATE INDEX holdfast_live_ready ON holdfast_live (queue, kind, priority DESC, due_at, id) WHERE state = 'ready';
CREATE INDEX holdfast_live_scheduled ON holdfast_live (id) WHERE state = 'scheduled';
CREATE INDEX holdfast_live_due ON holdfast_live (due_at, id) WHERE state = 'scheduled';
CREATE INDEX holdfast_live_waiting ON holdfast_live (id) WHERE state = 'waiting';
CREATE INDEX holdfast_live_held ON holdfast_live (id) WHERE state = 'held';
CREATE INDEX holdfast_live_running ON holdfast_live (queue, lease_expires_at) WHERE lease_expires_at IS NOT NULL;

-- How it ended.
CREATE TABLE holdfast_finished (
    id INTEGER PRIMARY KEY,
    state TEXT NOT NULL CHECK (state = 'done' OR state = 'dead' OR state = 'cancelled'),
    queue TEXT NOT NULL,
    kind TEXT NOT NULL,
    priority INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    crashes INTEGER NOT NULL,
    token INTEGER NOT NULL,
    worker TEXT,
    started_at INTEGER,
    finished_at INTEGER NOT NULL,
    reason TEXT,
    error TEXT,
    result TEXT
) STRICT;
CREATE INDEX holdfast_finished_when ON holdfast_finished (state, finished_at, id);
CREATE INDEX holdfast_finished_trouble ON holdfast_finished (state, id) WHERE state <> 'done';

-- The moves of a job among live states, as in domain/job.py. Ending and reviving change the table.
-- The claim's own move is asked for first: it is by far the most frequent.
CREATE TRIGGER holdfast_live_moves AFTER UPDATE OF state ON holdfast_live
    WHEN (OLD.state <> 'ready' OR NEW.state <> 'running') AND OLD.state <> NEW.state
        AND OLD.state || '>' || NEW.state NOT IN (
        'held>waiting', 'held>scheduled', 'held>ready',
        'waiting>scheduled', 'waiting>ready', 'waiting>held',
        'scheduled>ready', 'scheduled>held',
        'ready>running', 'ready>scheduled', 'ready>held',
        'running>ready', 'running>scheduled', 'running>held')
    BEGIN SELECT RAISE(ABORT, 'a job cannot make this move'); END;

-- Who dependencies whom.
CREATE TABLE holdfast_dependency (
    job_id INTEGER NOT NULL,
    dependency_id INTEGER NOT NULL,
    PRIMARY KEY (job_id, dependency_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_dependency_by_dependency ON holdfast_dependency (dependency_id);

-- Unique keys. A key outlives its job's rows when it is taken for ever.
CREATE TABLE holdfast_key (
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    job_id INTEGER NOT NULL,
    scope TEXT NOT NULL CHECK (scope = 'live' OR scope = 'period' OR scope = 'forever'),
    expires_at INTEGER,
    PRIMARY KEY (kind, key),
    CHECK ((scope = 'period') = (expires_at IS NOT NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_key_job ON holdfast_key (job_id);
CREATE INDEX holdfast_key_expiry ON holdfast_key (expires_at) WHERE expires_at IS NOT NULL;

-- Runs that did not simply succeed. A run that did is read from the job's own columns.
CREATE TABLE holdfast_attempt (
    job_id INTEGER NOT NULL,
    token INTEGER NOT NULL,
    number INTEGER NOT NULL,
    worker TEXT,
    started_at INTEGER,
    finished_at INTEGER NOT NULL,
    reason TEXT NOT NULL,
    exit_code INTEGER,
    error TEXT,
    PRIMARY KEY (job_id, token)
) STRICT, WITHOUT ROWID;

CREATE TABLE holdfast_event (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id INTEGER NOT NULL,
    at INTEGER NOT NULL,
    name TEXT NOT NULL,
    actor TEXT NOT NULL,
    detail TEXT
) STRICT;
CREATE INDEX holdfast_event_job ON holdfast_event (job_id, id);

-- What a running handler tells, and what it hands to its next attempt.
CREATE TABLE holdfast_progress (
    job_id INTEGER PRIMARY KEY,
    done INTEGER,
    total INTEGER,
    message TEXT,
    checkpoint TEXT,
    at INTEGER NOT NULL
) STRICT;

-- What a handler has finished for good, or sleeps for, across its attempts.
CREATE TABLE holdfast_step (
    job_id INTEGER NOT NULL,
    name TEXT NOT NULL,
    result TEXT,
    until INTEGER,
    PRIMARY KEY (job_id, name)
) STRICT, WITHOUT ROWID;

-- A job as people see it, while it is live and when it has ended. A list asks both, each for a page.
CREATE VIEW holdfast_live_view AS
    SELECT live.id, live.kind, live.queue, live.state, live.priority, live.due_at, job.label, job.tags, job.key,
        job.payload, job.parent_id, job.actor, job.created_at, live.attempts, job.max_attempts, live.crashes,
        job.max_crashes, job.on_lost, job.retry, job.after_when, job.after_failed, live.token, live.poison_suspect,
        live.requested, live.worker, live.claimed_at, live.started_at, live.lease_expires_at, live.note,
        NULL AS finished_at, NULL AS reason, NULL AS error, NULL AS result, told.done AS progress_done,
        told.total AS progress_total, told.message AS progress_message, told.checkpoint, 0 AS is_finished
    FROM holdfast_live AS live LEFT JOIN holdfast_job AS job ON job.id = live.id LEFT JOIN holdfast_progress AS told ON told.job_id = live.id;
CREATE VIEW holdfast_finished_view AS
    SELECT finished.id, finished.kind, finished.queue, finished.state, finished.priority, finished.due_at, job.label, job.tags,
        job.key, job.payload, job.parent_id, job.actor, job.created_at, finished.attempts, job.max_attempts,
        finished.crashes, job.max_crashes, job.on_lost, job.retry, job.after_when, job.after_failed, finished.token,
        0 AS poison_suspect, NULL AS requested, finished.worker, NULL AS claimed_at, finished.started_at, NULL AS lease_expires_at,
        NULL AS note, finished.finished_at, finished.reason, finished.error, finished.result, told.done AS progress_done,
        told.total AS progress_total, told.message AS progress_message, told.checkpoint, 1 AS is_finished
    FROM holdfast_finished AS finished LEFT JOIN holdfast_job AS job ON job.id = finished.id LEFT JOIN holdfast_progress AS told ON told.job_id = finished.id;
