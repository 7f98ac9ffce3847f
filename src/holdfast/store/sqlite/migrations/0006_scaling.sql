-- Autoscaling: bounds of queues, what programs take, and what was decided.

ALTER TABLE holdfast_queue ADD COLUMN scale_min INTEGER CHECK (scale_min > 0);
ALTER TABLE holdfast_queue ADD COLUMN scale_max INTEGER CHECK (scale_max > 0);
ALTER TABLE holdfast_worker ADD COLUMN autoscaler TEXT;

-- The peak memory of programs, by label: moments over their last runs.
CREATE TABLE holdfast_memory_profile (
    name TEXT PRIMARY KEY,
    samples INTEGER NOT NULL,
    mean REAL NOT NULL,
    variance REAL NOT NULL,
    largest INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_memory_profile_updated ON holdfast_memory_profile (updated_at);

-- What autoscalers have decided, and why.
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
