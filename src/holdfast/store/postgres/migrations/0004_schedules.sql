-- Schedules on PostgreSQL, and the ledger of their plans.

CREATE TABLE holdfast.schedule (
    name text PRIMARY KEY,
    definition json NOT NULL,                  -- what is fired, and when
    declared json,                             -- what code has said last; null: a person has made it
    version integer NOT NULL DEFAULT 0,        -- of what code has said: an older one never replaces a newer
    provider text,                             -- the function that is asked for scopes
    paused boolean NOT NULL DEFAULT false,
    note text,
    cursor timestamptz,                        -- all plans up to here are decided
    next_at timestamptz,                       -- when the next plan is to be decided; null: there is none
    check_at timestamptz,                       -- when a planner looks again: after a failure later than next_at
    fired bigint NOT NULL DEFAULT 0,
    failures integer NOT NULL DEFAULT 0,       -- failed tries to plan, since the last that did not fail
    error text,
    token bigint NOT NULL DEFAULT 0,           -- rises with every change: what was decided before is void
    actor text NOT NULL,
    created_at timestamptz NOT NULL,
    changed_at timestamptz NOT NULL,
    CHECK (NOT paused OR (next_at IS NULL AND check_at IS NULL))
) WITH (fillfactor = 70);
-- The planner's tick reads this index and nothing else, however many schedules are idle.
CREATE INDEX schedule_look ON holdfast.schedule (check_at, name) WHERE check_at IS NOT NULL;
CREATE INDEX schedule_failing ON holdfast.schedule (next_at) WHERE failures > 0;

-- Plans that were fired: each timestamp of a schedule once in each scope.
CREATE TABLE holdfast.plan (
    schedule text NOT NULL,
    time timestamptz NOT NULL,
    scope text NOT NULL,
    origin text NOT NULL CHECK (origin IN ('due', 'trigger', 'backfill')),
    job_id bigint NOT NULL,
    open boolean NOT NULL,                     -- its job may be live: the next plan of the scope looks at it
    queued boolean NOT NULL,                   -- it was fired to wait for the one before it
    actor text NOT NULL,
    decided_at timestamptz NOT NULL,
    PRIMARY KEY (schedule, time, scope)
) WITH (fillfactor = 90);
CREATE INDEX plan_open ON holdfast.plan (schedule, scope, time) WHERE open;
CREATE INDEX plan_queued ON holdfast.plan (job_id) WHERE queued;
-- Rows come in the order of their time: a range of pages is all that retention has to know.
CREATE INDEX plan_decided ON holdfast.plan USING brin (decided_at);

-- Plans that were not fired, as stretches, both ends included. An empty scope means all.
CREATE TABLE holdfast.skipped_plan (
    schedule text NOT NULL,
    last timestamptz NOT NULL,
    first timestamptz NOT NULL,
    scope text NOT NULL,
    reason text NOT NULL
        CHECK (reason IN ('catch_up', 'window', 'late', 'overlap', 'paused', 'edited', 'scope')),
    count bigint NOT NULL,
    decided_at timestamptz NOT NULL,
    PRIMARY KEY (schedule, last, first, scope, reason)
);
CREATE INDEX skipped_plan_decided ON holdfast.skipped_plan (decided_at);
