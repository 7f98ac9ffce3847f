-- The schema on SQLite: the tables of postgres/migrations, prefixed, so that they may live in the user's own file.
-- Instants and durations are integers, in microseconds (UTC).
--
-- Closed sets are spelt with OR, the most frequent value first: SQLite builds a table for a list after IN, for each row
-- anew, and that costs more than the row.

-- ---- installation -------------------------------------------------------------------------------------------------

CREATE TABLE holdfast_meta (
    single_row INTEGER PRIMARY KEY DEFAULT 1 CHECK (single_row = 1),
    installation TEXT NOT NULL DEFAULT (lower(hex(randomblob(16)))),
    last_job_id INTEGER NOT NULL DEFAULT 0,    -- before the long texts: every enqueue reads and writes it
    version INTEGER NOT NULL,
    oldest_code INTEGER NOT NULL,              -- the oldest code that may use this schema
    checksums TEXT NOT NULL,                   -- of the migrations, by number
    objects TEXT NOT NULL,                     -- the columns, indexes and triggers after the last migration
    successor TEXT                             -- the store that this one was copied to; it refuses all changes then
) STRICT;

-- ---- fleet: kinds, queues, workers, autoscaler --------------------------------------------------------------------

CREATE TABLE holdfast_kind (
    name TEXT PRIMARY KEY,
    options TEXT NOT NULL,
    payload_schema TEXT NOT NULL,
    version INTEGER NOT NULL,                  -- an older version never replaces a newer one
    published_at INTEGER NOT NULL,
    provisional INTEGER NOT NULL DEFAULT 0     -- only producers have published it, on PostgreSQL: a worker replaces it
) STRICT, WITHOUT ROWID;

-- The fields of payloads that views mask. What any code has declared once stays, also when other code publishes the kind
-- without it, and when the kind is deleted: its jobs hold the values. Only an admin removes a row.
CREATE TABLE holdfast_secret_field (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;
-- BEFORE INSERT: it fires for a publication that does not replace a newer version, too.
CREATE TRIGGER holdfast_kind_published BEFORE INSERT ON holdfast_kind BEGIN
    INSERT INTO holdfast_secret_field SELECT NEW.name, value FROM json_each(NEW.options, '$.secrets')
    WHERE value IS NOT NULL ON CONFLICT DO NOTHING;
END;
CREATE TRIGGER holdfast_kind_changed BEFORE UPDATE OF name, options ON holdfast_kind BEGIN
    INSERT INTO holdfast_secret_field SELECT NEW.name, value FROM json_each(NEW.options, '$.secrets')
    WHERE value IS NOT NULL ON CONFLICT DO NOTHING;
END;

CREATE TABLE holdfast_queue (
    name TEXT PRIMARY KEY,
    run_limit INTEGER CHECK (run_limit > 0),
    worker_limit INTEGER CHECK (worker_limit > 0),
    paused INTEGER NOT NULL DEFAULT 0,
    note TEXT,
    scale_min INTEGER CHECK (scale_min > 0),
    scale_max INTEGER CHECK (scale_max > 0)
) STRICT, WITHOUT ROWID;

-- The switch that stops the whole store. While it has its row, no claim starts a job and no planner fires a plan.
CREATE TABLE holdfast_stop_switch (
    single_row INTEGER PRIMARY KEY DEFAULT 1 CHECK (single_row = 1),
    mode TEXT NOT NULL CHECK (mode IN ('drain', 'stop')),
    actor TEXT NOT NULL,
    note TEXT,
    at INTEGER NOT NULL
) STRICT;

-- The switch of commands. While it has its row, no worker runs a command.
CREATE TABLE holdfast_command_switch (
    single_row INTEGER PRIMARY KEY DEFAULT 1 CHECK (single_row = 1),
    switched_off_at INTEGER NOT NULL
) STRICT;

CREATE TABLE holdfast_worker (
    id TEXT PRIMARY KEY,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    process TEXT,                              -- identifies its process on its host; NULL: not known there
    version TEXT,
    queues TEXT NOT NULL,
    kinds TEXT NOT NULL,
    build TEXT NOT NULL DEFAULT '',            -- names its code: workers of one build read the same payloads
    names TEXT NOT NULL DEFAULT '{}',           -- the code behind its kinds and schedules, and its application: JSON
    started_at INTEGER NOT NULL,
    seen_at INTEGER NOT NULL,
    stopped_at INTEGER,
    autoscaler TEXT,                           -- the state of its autoscaler
    slots INTEGER,
    requested TEXT CHECK (requested = 'quiet' OR requested = 'stop')  -- read by the worker's next heartbeat
) STRICT, WITHOUT ROWID;

-- The peak memory of commands, by label: mean and variance over the last runs.
CREATE TABLE holdfast_memory_profile (
    name TEXT PRIMARY KEY,
    samples INTEGER NOT NULL,
    mean REAL NOT NULL,
    variance REAL NOT NULL,
    largest INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_memory_profile_updated ON holdfast_memory_profile (updated_at);

CREATE TABLE holdfast_autoscaler_decision (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    queue TEXT NOT NULL,
    host TEXT NOT NULL,
    worker TEXT NOT NULL,
    action TEXT NOT NULL,
    job_id INTEGER,
    slots INTEGER,
    text TEXT NOT NULL
) STRICT;
CREATE INDEX holdfast_autoscaler_decision_queue ON holdfast_autoscaler_decision (queue, id);
CREATE INDEX holdfast_autoscaler_decision_at ON holdfast_autoscaler_decision (at);

-- ---- jobs ---------------------------------------------------------------------------------------------------------

-- The request of a job.
CREATE TABLE holdfast_job (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    kind_version INTEGER NOT NULL DEFAULT 1,   -- of the code that wrote the payload
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
    timeout REAL CHECK (timeout >= 0),         -- of one run, in seconds; 0: no limit; NULL: that of the kind
    after_when TEXT CHECK (after_when = 'done' OR after_when = 'finished' OR after_when = 'failed'),
    after_failed TEXT CHECK (after_failed = 'cancel' OR after_failed = 'hold'),
    nonce INTEGER,                             -- of the call that enqueued it: a call sent again has the same one
    plan TEXT,                                 -- that it carries out: schedule, time and scope
    db_user TEXT                               -- the login of PostgreSQL that enqueued it
) STRICT;
CREATE INDEX holdfast_job_label ON holdfast_job (label, id) WHERE label IS NOT NULL;
CREATE INDEX holdfast_job_key ON holdfast_job (key, id) WHERE key IS NOT NULL;
CREATE INDEX holdfast_job_created ON holdfast_job (created_at);

-- The jobs that have a tag. Triggers keep it, so that a copy of the store leaves it out.
CREATE TABLE holdfast_job_tag (
    tag TEXT NOT NULL,
    job_id INTEGER NOT NULL,
    PRIMARY KEY (tag, job_id)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER holdfast_job_inserted_tags AFTER INSERT ON holdfast_job WHEN NEW.tags IS NOT NULL BEGIN
    INSERT INTO holdfast_job_tag SELECT DISTINCT value, NEW.id FROM json_each(NEW.tags);
END;
CREATE TRIGGER holdfast_job_deleted_tags AFTER DELETE ON holdfast_job WHEN OLD.tags IS NOT NULL BEGIN
    DELETE FROM holdfast_job_tag WHERE job_id = OLD.id AND tag IN (SELECT value FROM json_each(OLD.tags));
END;
CREATE TRIGGER holdfast_job_changed_tags AFTER UPDATE OF tags ON holdfast_job WHEN OLD.tags IS NOT NEW.tags BEGIN
    DELETE FROM holdfast_job_tag WHERE job_id = OLD.id AND tag IN (SELECT value FROM json_each(OLD.tags));
    INSERT INTO holdfast_job_tag SELECT DISTINCT value, NEW.id FROM json_each(NEW.tags);
END;

-- The present state of a job.
CREATE TABLE holdfast_live (
    id INTEGER PRIMARY KEY,
    state TEXT NOT NULL CHECK (state = 'ready' OR state = 'running' OR state = 'held' OR state = 'waiting'
        OR state = 'scheduled'),
    queue TEXT NOT NULL,
    kind TEXT NOT NULL,
    priority INTEGER NOT NULL,
    due_at INTEGER NOT NULL CHECK (due_at >= -2208988800000000 AND due_at < 221845392000000000),  -- years 1900 to 8999
    attempts INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    crashes INTEGER NOT NULL DEFAULT 0,
    token INTEGER NOT NULL DEFAULT 0,
    no_prefetch INTEGER NOT NULL DEFAULT 0,    -- claimed only for a free slot; its start is recorded before it runs
    losses INTEGER NOT NULL DEFAULT 0 CHECK (losses BETWEEN 0 AND 3),  -- holders lost before a durable start: a suspect
    has_dependents INTEGER NOT NULL DEFAULT 0, -- other jobs may wait for it
    requested TEXT CHECK (requested = 'cancel' OR requested = 'pause'),  -- read by the holder's next renewal
    worker TEXT,
    claimed_at INTEGER,
    started_at INTEGER,                        -- the durable start: from here on a loss costs an attempt
    lease_expires_at INTEGER,
    note TEXT,
    kind_version INTEGER NOT NULL DEFAULT 1,   -- of the code that wrote the payload
    reader TEXT NOT NULL DEFAULT '',           -- the only build that may claim it; '' means every build
    refusals TEXT,                             -- the builds that could not read the payload, oldest first
    CHECK ((state = 'running') = (lease_expires_at IS NOT NULL)),
    CHECK ((state = 'running') = (worker IS NOT NULL)),
    CHECK ((state = 'running') = (claimed_at IS NOT NULL)),
    CHECK (state = 'running' OR started_at IS NULL)
) STRICT;
-- The claim reads only this index. It holds the ready jobs in claim order. A lane is a queue, a kind and a reader, so that
-- a worker never passes over jobs that its code cannot read.
CREATE INDEX holdfast_live_ready ON holdfast_live (queue, kind, reader, priority DESC, due_at, id)
    WHERE state = 'ready';
-- Jobs that some build could not read. Held ones without a reader wait for a new build.
CREATE INDEX holdfast_live_refused ON holdfast_live (reader, state, queue, kind, id) WHERE refusals IS NOT NULL;
CREATE INDEX holdfast_live_scheduled ON holdfast_live (id) WHERE state = 'scheduled';
CREATE INDEX holdfast_live_due ON holdfast_live (due_at, id) WHERE state = 'scheduled';
CREATE INDEX holdfast_live_waiting ON holdfast_live (id) WHERE state = 'waiting';
CREATE INDEX holdfast_live_held ON holdfast_live (id) WHERE state = 'held';
CREATE INDEX holdfast_live_retried ON holdfast_live (id) WHERE attempts > 0 AND state <> 'running';
CREATE INDEX holdfast_live_parked ON holdfast_live (queue, state) WHERE substr(state, 1, 1) <> 'r';
CREATE INDEX holdfast_live_running ON holdfast_live (queue, lease_expires_at) WHERE lease_expires_at IS NOT NULL;

-- The outcome of a job.
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
CREATE INDEX holdfast_finished_time ON holdfast_finished (state, finished_at, id);
CREATE INDEX holdfast_finished_unsuccessful ON holdfast_finished (state, id) WHERE state <> 'done';
CREATE INDEX holdfast_finished_error ON holdfast_finished (id) WHERE error IS NOT NULL;

-- The transitions between live states, as in domain/jobs/job.py. Finishing and retrying change the table.
-- The claim's transition is tested first: it is by far the most frequent.
CREATE TRIGGER holdfast_live_transitions AFTER UPDATE OF state ON holdfast_live
    WHEN (OLD.state <> 'ready' OR NEW.state <> 'running') AND OLD.state <> NEW.state
        AND OLD.state || '>' || NEW.state NOT IN (
        'held>waiting', 'held>scheduled', 'held>ready',
        'waiting>scheduled', 'waiting>ready', 'waiting>held',
        'scheduled>ready', 'scheduled>held',
        'ready>running', 'ready>scheduled', 'ready>held',
        'running>ready', 'running>scheduled', 'running>held')
    BEGIN SELECT RAISE(ABORT, 'a job cannot make this move'); END;

CREATE TABLE holdfast_dependency (
    job_id INTEGER NOT NULL,
    dependency_id INTEGER NOT NULL,            -- the job that it waits for
    PRIMARY KEY (job_id, dependency_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_dependency_dependents ON holdfast_dependency (dependency_id);

-- Jobs whose settlement has effects on others that its transaction left out: each is judged if it waits, and so are the
-- jobs that wait for it (docs/adr/0027-what-a-settlement-does.md). Maintenance takes the rows every second.
CREATE TABLE holdfast_pending_effect (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id INTEGER NOT NULL
) STRICT;

-- Unique keys. A key with scope 'forever' outlives its job.
CREATE TABLE holdfast_key (
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    job_id INTEGER NOT NULL,
    scope TEXT NOT NULL CHECK (scope = 'live' OR scope = 'period' OR scope = 'forever'),
    expires_at INTEGER,
    previous_id INTEGER,                       -- had the key before, and may still run: job_id starts after it
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
CREATE INDEX holdfast_attempt_finished ON holdfast_attempt (finished_at);

CREATE TABLE holdfast_event (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id INTEGER NOT NULL,
    at INTEGER NOT NULL,
    name TEXT NOT NULL,
    actor TEXT NOT NULL,
    detail TEXT
) STRICT;
CREATE INDEX holdfast_event_job ON holdfast_event (job_id, id);

-- The progress of a running handler, and its checkpoint for the next attempt.
CREATE TABLE holdfast_progress (
    job_id INTEGER PRIMARY KEY,
    done INTEGER,
    total INTEGER,
    message TEXT,
    checkpoint TEXT,
    at INTEGER NOT NULL,
    token INTEGER,                             -- of the run that reported done
    base INTEGER                               -- done when that run began
) STRICT;

-- Steps of a handler that are finished for good or asleep, across attempts.
CREATE TABLE holdfast_step (
    job_id INTEGER NOT NULL,
    name TEXT NOT NULL,
    result TEXT,
    until INTEGER,
    PRIMARY KEY (job_id, name)
) STRICT, WITHOUT ROWID;

-- The W3C trace context of the enqueue.
CREATE TABLE holdfast_trace (
    job_id INTEGER PRIMARY KEY,
    context TEXT NOT NULL
) STRICT;

-- All columns of a job, while it is live and after it has finished. Lists read a page of each view.
CREATE VIEW holdfast_live_view AS
    SELECT live.id, live.kind, live.queue, live.state, live.priority, live.due_at, job.label, job.tags, job.key,
        job.payload, job.parent_id, job.actor, job.created_at, live.attempts, job.max_attempts, live.crashes,
        job.max_crashes, job.on_lost, job.retry, job.after_when, job.after_failed, live.token, live.losses,
        live.requested, live.worker, live.claimed_at, live.started_at, live.lease_expires_at, live.note,
        NULL AS finished_at, NULL AS reason,
        -- The error of the last failed attempt, until the next attempt begins.
        CASE WHEN live.attempts > 0 AND live.state <> 'running' THEN (
            SELECT attempt.error FROM holdfast_attempt AS attempt
            WHERE attempt.job_id = live.id AND attempt.error IS NOT NULL
            ORDER BY attempt.token DESC LIMIT 1) END AS error, NULL AS result, progress.done AS progress_done,
        progress.total AS progress_total, progress.message AS progress_message, progress.checkpoint,
        live.kind_version, live.reader, live.refusals,
        CASE WHEN progress.token = live.token THEN progress.base ELSE progress.done END AS progress_base,
        job.timeout, 0 AS is_finished, live.attempts > 0 AND live.state <> 'running' AS may_have_error
    FROM holdfast_live AS live LEFT JOIN holdfast_job AS job ON job.id = live.id
    LEFT JOIN holdfast_progress AS progress ON progress.job_id = live.id;
CREATE VIEW holdfast_finished_view AS
    SELECT finished.id, finished.kind, finished.queue, finished.state, finished.priority, finished.due_at, job.label,
        job.tags, job.key, job.payload, job.parent_id, job.actor, job.created_at, finished.attempts, job.max_attempts,
        finished.crashes, job.max_crashes, job.on_lost, job.retry, job.after_when, job.after_failed, finished.token,
        0 AS losses, NULL AS requested, finished.worker, NULL AS claimed_at, finished.started_at,
        NULL AS lease_expires_at, NULL AS note, finished.finished_at, finished.reason, finished.error,
        finished.result, progress.done AS progress_done, progress.total AS progress_total,
        progress.message AS progress_message, progress.checkpoint, job.kind_version, '' AS reader, NULL AS refusals,
        progress.base AS progress_base, job.timeout, 1 AS is_finished, finished.error IS NOT NULL AS may_have_error
    FROM holdfast_finished AS finished LEFT JOIN holdfast_job AS job ON job.id = finished.id
    LEFT JOIN holdfast_progress AS progress ON progress.job_id = finished.id;

-- ---- batches ------------------------------------------------------------------------------------------------------

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
    failures TEXT,                             -- the failures for which a breaker stopped it, grouped
    total INTEGER,
    run_number INTEGER NOT NULL DEFAULT 0,     -- the number of runs that have begun
    version TEXT,
    inputs TEXT,
    code TEXT,
    origin TEXT,                               -- where the function of its last run lives
    options TEXT NOT NULL,
    actor TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    finished_at INTEGER,
    UNIQUE (identity, generation)
) STRICT;
CREATE INDEX holdfast_batch_open ON holdfast_batch (id) WHERE state IN ('ready', 'running', 'paused', 'stopped');
CREATE INDEX holdfast_batch_running ON holdfast_batch (id) WHERE state = 'running';
CREATE INDEX holdfast_batch_cancelled ON holdfast_batch (id) WHERE requested = 'cancel';
CREATE INDEX holdfast_batch_finished ON holdfast_batch (finished_at)
    WHERE state IN ('done', 'partial', 'failed', 'cancelled');

-- The history of a batch: runs, requests of people, and the reasons of its stops.
CREATE TABLE holdfast_batch_event (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    batch_id INTEGER NOT NULL,
    at INTEGER NOT NULL,
    name TEXT NOT NULL,
    actor TEXT,                                -- the person; NULL: the batch itself
    run_number INTEGER NOT NULL,
    detail TEXT
) STRICT;
CREATE INDEX holdfast_batch_event_batch ON holdfast_batch_event (batch_id, id);

-- The ends of batches by result, counted in the transaction that ends each: a row for one end or for many. Only rows are
-- added, so that no end waits for another one. Maintenance adds them up.
CREATE TABLE holdfast_batch_tally (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    result TEXT NOT NULL,
    count INTEGER NOT NULL
) STRICT;

-- Batches that were deleted and whose units, counters or results still have rows: they are deleted in steps.
CREATE TABLE holdfast_deleted_batch (
    id INTEGER PRIMARY KEY,
    deleted_at INTEGER NOT NULL
) STRICT;

-- The ledger. Units of a foreground run that never began have no row. A unit is 'running' while its result waits in an
-- inbox; the units that a holder runs are in in_flight.
CREATE TABLE holdfast_unit (
    batch_id INTEGER NOT NULL,
    key TEXT NOT NULL,
    position INTEGER NOT NULL,                 -- in the input
    state TEXT NOT NULL CHECK (state = 'done' OR state = 'pending' OR state = 'running' OR state = 'failed'
        OR state = 'skipped' OR state = 'cancelled' OR state = 'in_doubt'),
    run_number INTEGER NOT NULL,               -- the run of the batch that met its key last
    last_run INTEGER NOT NULL DEFAULT 0,       -- the run that last began it; 0: none has, or its first run finished it
    attempts INTEGER NOT NULL DEFAULT 0,
    crashes INTEGER NOT NULL DEFAULT 0,
    poison_suspect INTEGER NOT NULL DEFAULT 0, -- a holder was lost while this unit was in flight
    label TEXT,
    warning TEXT,
    error TEXT,
    data TEXT,
    duration_ms INTEGER,
    attempted_at INTEGER,                      -- the end of its last attempt
    worker TEXT,                               -- that made its last attempt
    earlier_errors TEXT,                       -- the errors of earlier attempts, the newest last, a few at most
    PRIMARY KEY (batch_id, key)
) STRICT, WITHOUT ROWID;
-- The order in which units run: those that no run has begun come first.
CREATE INDEX holdfast_unit_pending ON holdfast_unit (batch_id, last_run, position) WHERE state = 'pending';
CREATE INDEX holdfast_unit_failed ON holdfast_unit (batch_id, last_run, position) WHERE state = 'failed';
-- Done units are not in it, so that a run pays nothing for it.
CREATE INDEX holdfast_unit_state ON holdfast_unit (batch_id, state, key) WHERE state <> 'done' AND state <> 'pending';

-- The units that a holder runs. Its right to them is the lease of its job.
CREATE TABLE holdfast_in_flight (
    job_id INTEGER PRIMARY KEY,
    batch_id INTEGER NOT NULL,
    token INTEGER NOT NULL,
    run_number INTEGER NOT NULL,
    units TEXT NOT NULL,                       -- keys and places, or a range and its first place
    isolated INTEGER NOT NULL DEFAULT 0,       -- one poison suspect alone: if the holder is lost, this unit crashed it
    in_doubt_if_lost INTEGER NOT NULL DEFAULT 0,  -- units of a lost holder become in_doubt and wait for a person
    owner TEXT NOT NULL
) STRICT;
CREATE INDEX holdfast_in_flight_batch ON holdfast_in_flight (batch_id);

-- One row per holder and name, so that holders do not wait for each other.
CREATE TABLE holdfast_unit_count (
    batch_id INTEGER NOT NULL,
    job_id INTEGER NOT NULL,
    name TEXT NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (batch_id, job_id, name)
) STRICT, WITHOUT ROWID;

-- Results that wait until a consumer accepts them, or until they expire.
CREATE TABLE holdfast_inbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    inbox TEXT NOT NULL,
    batch_id INTEGER NOT NULL,
    key TEXT NOT NULL,
    data TEXT NOT NULL,
    token INTEGER NOT NULL DEFAULT 0,          -- rises with each claim
    available_at INTEGER NOT NULL,             -- when it may be claimed
    expires_at INTEGER NOT NULL,
    UNIQUE (batch_id, key)
) STRICT;
CREATE INDEX holdfast_inbox_available ON holdfast_inbox (inbox, available_at, id);
CREATE INDEX holdfast_inbox_expires ON holdfast_inbox (expires_at);

-- ---- schedules ----------------------------------------------------------------------------------------------------

CREATE TABLE holdfast_schedule (
    name TEXT PRIMARY KEY,
    definition TEXT NOT NULL,                  -- the job to fire, and when
    declared TEXT,                             -- the last definition in code; null: a person created it
    application TEXT,                          -- that declared it last
    version INTEGER NOT NULL DEFAULT 0,        -- of the definition in code: an older one never replaces a newer
    provider TEXT,                             -- the function that lists the scopes
    paused INTEGER NOT NULL DEFAULT 0,
    note TEXT,
    cursor INTEGER NOT NULL,                   -- all plans up to here are decided
    next_at INTEGER,                           -- the next plan to decide; null: there is none
    check_at INTEGER,                          -- when a planner checks it: after a failure, later than next_at
    fired INTEGER NOT NULL DEFAULT 0,
    failures INTEGER NOT NULL DEFAULT 0,       -- failures to plan since the last success
    error TEXT,
    token INTEGER NOT NULL DEFAULT 0,          -- rises with every change: earlier decisions are void; begins at a random number
    actor TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    CHECK (NOT paused OR (next_at IS NULL AND check_at IS NULL))
) STRICT, WITHOUT ROWID;
-- The planner's tick reads only the first two indexes, however many schedules are idle. Schedules that wait for their
-- provider are in the second one, so that they never hide the others. The third one finds the oldest of them.
CREATE INDEX holdfast_schedule_check ON holdfast_schedule (check_at, name) WHERE check_at IS NOT NULL AND provider IS NULL;
CREATE INDEX holdfast_schedule_provider ON holdfast_schedule (provider, check_at, name)
    WHERE check_at IS NOT NULL AND provider IS NOT NULL;
CREATE INDEX holdfast_schedule_scoped ON holdfast_schedule (check_at, name) WHERE check_at IS NOT NULL AND provider IS NOT NULL;
CREATE INDEX holdfast_schedule_failing ON holdfast_schedule (next_at) WHERE failures > 0;
-- Lists of schedules by condition and by kind.
CREATE INDEX holdfast_schedule_failing_names ON holdfast_schedule (name) WHERE failures > 0;
CREATE INDEX holdfast_schedule_paused ON holdfast_schedule (name) WHERE paused;
CREATE INDEX holdfast_schedule_over ON holdfast_schedule (name) WHERE next_at IS NULL AND NOT paused AND failures = 0;
CREATE INDEX holdfast_schedule_kind ON holdfast_schedule ((definition->>'kind'), name);

-- Plans that were fired: each time of a schedule once per scope. The rows outlive their schedule, so that a schedule that
-- is deleted and created again repeats no plan.
CREATE TABLE holdfast_plan (
    schedule TEXT NOT NULL,
    time INTEGER NOT NULL,
    scope TEXT NOT NULL,
    origin TEXT NOT NULL CHECK (origin = 'due' OR origin = 'trigger' OR origin = 'backfill'),
    job_id INTEGER NOT NULL,
    open INTEGER NOT NULL,                     -- its job may be live: the next plan of the scope checks it
    queued INTEGER NOT NULL,                   -- it waits for the plan before it
    actor TEXT NOT NULL,
    decided_at INTEGER NOT NULL,
    PRIMARY KEY (schedule, time, scope)
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_plan_open ON holdfast_plan (schedule, scope, time) WHERE open AND NOT queued;
CREATE INDEX holdfast_plan_line ON holdfast_plan (schedule, scope, time) WHERE open AND queued;
CREATE INDEX holdfast_plan_queued ON holdfast_plan (job_id) WHERE queued;
CREATE INDEX holdfast_plan_job ON holdfast_plan (job_id);
CREATE INDEX holdfast_plan_decided ON holdfast_plan (decided_at);

-- Plans that were not fired, as ranges with both ends included. An empty scope means all scopes.
CREATE TABLE holdfast_skipped_plan (
    schedule TEXT NOT NULL,
    last INTEGER NOT NULL,
    first INTEGER NOT NULL,
    scope TEXT NOT NULL,
    reason TEXT NOT NULL
        CHECK (reason IN ('catch_up', 'window', 'late', 'overlap', 'backlog', 'paused', 'edited', 'scope')),
    count INTEGER NOT NULL,
    decided_at INTEGER NOT NULL,
    PRIMARY KEY (schedule, last, first, scope, reason)
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_skipped_plan_decided ON holdfast_skipped_plan (decided_at);

-- The executions of jobs, one row for each: runs that are recorded as attempts, the last one of a job that is done, and those
-- that run now. Neither payloads nor results. The guide to schedules describes the columns.
CREATE VIEW holdfast_execution_view AS
    SELECT attempt.job_id, attempt.number AS attempt, job.kind, coalesce(
            (SELECT live.queue FROM holdfast_live AS live WHERE live.id = attempt.job_id),
            (SELECT finished.queue FROM holdfast_finished AS finished WHERE finished.id = attempt.job_id)) AS queue,
        job.label, plan.schedule, plan.time AS plan_time, plan.scope, attempt.worker, worker.host, attempt.reason AS outcome,
        job.created_at AS enqueued_at, attempt.started_at, attempt.finished_at,
        (attempt.finished_at - attempt.started_at) / 1e6 AS seconds, attempt.exit_code, attempt.error
    FROM holdfast_attempt AS attempt JOIN holdfast_job AS job ON job.id = attempt.job_id
    LEFT JOIN holdfast_plan AS plan ON plan.job_id = job.id AND plan.decided_at = job.created_at
    LEFT JOIN holdfast_worker AS worker ON worker.id = attempt.worker
    UNION ALL
    SELECT finished.id AS job_id, finished.attempts AS attempt, job.kind, finished.queue,
        job.label, plan.schedule, plan.time AS plan_time, plan.scope, finished.worker, worker.host, 'done' AS outcome,
        job.created_at AS enqueued_at, finished.started_at, finished.finished_at,
        (finished.finished_at - finished.started_at) / 1e6 AS seconds, NULL AS exit_code, NULL AS error
    FROM holdfast_finished AS finished JOIN holdfast_job AS job ON job.id = finished.id
    LEFT JOIN holdfast_plan AS plan ON plan.job_id = job.id AND plan.decided_at = job.created_at
    LEFT JOIN holdfast_worker AS worker ON worker.id = finished.worker
    WHERE finished.state = 'done'
    UNION ALL
    SELECT live.id AS job_id, live.attempts AS attempt, job.kind, live.queue,
        job.label, plan.schedule, plan.time AS plan_time, plan.scope, live.worker, worker.host, 'running' AS outcome,
        job.created_at AS enqueued_at, live.started_at, NULL AS finished_at,
        NULL AS seconds, NULL AS exit_code, NULL AS error
    -- planner: CROSS JOIN begins with the few jobs that run.
    FROM holdfast_live AS live CROSS JOIN holdfast_job AS job ON job.id = live.id
    LEFT JOIN holdfast_plan AS plan ON plan.job_id = job.id AND plan.decided_at = job.created_at
    LEFT JOIN holdfast_worker AS worker ON worker.id = live.worker
    WHERE live.state = 'running' AND live.started_at IS NOT NULL;

-- ---- access -------------------------------------------------------------------------------------------------------

-- The actions of people, oldest first.
CREATE TABLE holdfast_audit_entry (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    via TEXT NOT NULL CHECK (via = 'cli' OR via = 'web' OR via = 'api'),
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    count INTEGER,
    note TEXT,
    os_user TEXT,
    db_user TEXT
) STRICT;
CREATE INDEX holdfast_audit_entry_time ON holdfast_audit_entry (at);

-- Tokens. Only a hash is stored; the prefix is public and finds it. Revoked tokens stay: audit entries name them.
CREATE TABLE holdfast_credential (
    prefix TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    role TEXT NOT NULL CHECK (role = 'viewer' OR role = 'operator' OR role = 'admin'),
    inbox TEXT CHECK (inbox IS NULL OR role <> 'admin'),     -- the one inbox that the token may use; NULL: no limit
    hash TEXT NOT NULL,                        -- SHA-256 of the token, which is 256 random bits
    actor TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    last_used_at INTEGER,
    revoked_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX holdfast_credential_name ON holdfast_credential (name) WHERE revoked_at IS NULL;

-- Sessions of people in browsers, and links that open one session each. A session that was signed out of has no row.
CREATE TABLE holdfast_session (
    hash TEXT PRIMARY KEY,                     -- SHA-256 of the cookie, or of the link
    is_link INTEGER NOT NULL,
    name TEXT NOT NULL,                        -- the person; empty for a link
    role TEXT NOT NULL CHECK (role = 'viewer' OR role = 'operator' OR role = 'admin'),
    prefix TEXT,                               -- of the token that opened it; null: a link did
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_session_expires ON holdfast_session (expires_at);

-- Secrets that all web servers of a store share, such as the key that signs forms.
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

-- Answers to requests that carried an idempotency key: a repeated request gets the same answer.
CREATE TABLE holdfast_idempotency_key (
    credential TEXT NOT NULL,
    key TEXT NOT NULL,
    digest TEXT NOT NULL,
    status INTEGER,                            -- null only within the transaction of the request
    body TEXT,
    at INTEGER NOT NULL,
    PRIMARY KEY (credential, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_idempotency_key_time ON holdfast_idempotency_key (at);
