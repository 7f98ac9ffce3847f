-- Schedules on SQLite, and the ledger of their plans.

CREATE TABLE holdfast_schedule (
    name TEXT PRIMARY KEY,
    definition TEXT NOT NULL,                  -- what is fired, and when
    declared TEXT,                             -- what code has said last; null: a person has made it
    version INTEGER NOT NULL DEFAULT 0,        -- of what code has said: an older one never replaces a newer
    provider TEXT,                             -- the function that is asked for scopes
    paused INTEGER NOT NULL DEFAULT 0,
    note TEXT,
    cursor INTEGER,                            -- all plans up to here are decided
    next_at INTEGER,                           -- when the next plan is to be decided; null: there is none
    check_at INTEGER,                           -- when a planner looks again: after a failure later than next_at
    fired INTEGER NOT NULL DEFAULT 0,
    failures INTEGER NOT NULL DEFAULT 0,       -- failed tries to plan, since the last that did not fail
    error TEXT,
    token INTEGER NOT NULL DEFAULT 0,          -- rises with every change: what was decided before is void
    actor TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    CHECK (NOT paused OR (next_at IS NULL AND check_at IS NULL))
) STRICT, WITHOUT ROWID;
-- The planner's tick reads this index and nothing else, however many schedules are idle.
CREATE INDEX holdfast_schedule_look ON holdfast_schedule (check_at, name) WHERE check_at IS NOT NULL;
CREATE INDEX holdfast_schedule_failing ON holdfast_schedule (next_at) WHERE failures > 0;

-- Plans that were fired: each timestamp of a schedule once in each scope.
CREATE TABLE holdfast_plan (
    schedule TEXT NOT NULL,
    time INTEGER NOT NULL,
    scope TEXT NOT NULL,
    origin TEXT NOT NULL CHECK (origin = 'due' OR origin = 'trigger' OR origin = 'backfill'),
    job_id INTEGER NOT NULL,
    open INTEGER NOT NULL,                     -- its job may be live: the next plan of the scope looks at it
    queued INTEGER NOT NULL,                   -- it was fired to wait for the one before it
    actor TEXT NOT NULL,
    decided_at INTEGER NOT NULL,
    PRIMARY KEY (schedule, time, scope)
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_plan_open ON holdfast_plan (schedule, scope, time) WHERE open;
CREATE INDEX holdfast_plan_queued ON holdfast_plan (job_id) WHERE queued;
CREATE INDEX holdfast_plan_decided ON holdfast_plan (decided_at);

-- Plans that were not fired, as stretches, both ends included. An empty scope means all.
CREATE TABLE holdfast_skipped_plan (
    schedule TEXT NOT NULL,
    last INTEGER NOT NULL,
    first INTEGER NOT NULL,
    scope TEXT NOT NULL,
    reason TEXT NOT NULL
        CHECK (reason IN ('catch_up', 'window', 'late', 'overlap', 'paused', 'edited', 'scope')),
    count INTEGER NOT NULL,
    decided_at INTEGER NOT NULL,
    PRIMARY KEY (schedule, last, first, scope, reason)
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_skipped_plan_decided ON holdfast_skipped_plan (decided_at);
