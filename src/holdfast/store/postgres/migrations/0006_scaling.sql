-- Autoscaling: bounds of queues, what programs take, and what was decided.

ALTER TABLE holdfast.queue ADD COLUMN scale_min integer CHECK (scale_min > 0);
ALTER TABLE holdfast.queue ADD COLUMN scale_max integer CHECK (scale_max > 0);
ALTER TABLE holdfast.worker ADD COLUMN autoscaler json;

-- The peak memory of programs, by label: moments over their last runs.
CREATE TABLE holdfast.memory_profile (
    name text PRIMARY KEY,
    samples integer NOT NULL,
    mean double precision NOT NULL,
    variance double precision NOT NULL,
    largest bigint NOT NULL,
    updated_at timestamptz NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX memory_profile_updated ON holdfast.memory_profile (updated_at);

-- What autoscalers have decided, and why.
CREATE TABLE holdfast.autoscaler_decision (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL,
    queue text NOT NULL,
    host text NOT NULL,
    worker text NOT NULL,
    action text NOT NULL,
    job_id bigint,
    slots integer,
    text text NOT NULL
);
CREATE INDEX autoscaler_decision_queue ON holdfast.autoscaler_decision (queue, id);
CREATE INDEX autoscaler_decision_at ON holdfast.autoscaler_decision (at);
