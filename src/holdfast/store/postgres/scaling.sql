-- Autoscaling on PostgreSQL: who is in line, who begins, what programs take, what was decided.

-- name: list_ready_jobs
-- The first ready jobs of a queue and kind, in their order, with what tells how much they will take.
SELECT first.id AS job_id, job.label, job.payload::text AS payload, job.on_lost, first.poison_suspect
FROM (
    SELECT id, poison_suspect, priority, due_at FROM holdfast.live
    WHERE state = 'ready' AND queue = :queue AND kind = :kind
    ORDER BY priority DESC, due_at, id LIMIT :limit::bigint) AS first
CROSS JOIN LATERAL (SELECT label, payload, on_lost FROM holdfast.job WHERE job.id = first.id LIMIT 1) AS job
ORDER BY first.priority DESC, first.due_at, first.id

-- name: claim_job
-- One job that was chosen, if it is still there to be taken. Its start is started: it begins at once. (The odd
-- comparisons keep the plan on the primary key.)
WITH taken AS (
    UPDATE holdfast.live SET state = 'running', token = token + 1, worker = :worker,
        claimed_at = (SELECT holdfast.now()), lease_expires_at = (SELECT holdfast.now()) + :lease_duration::interval,
        started_at = (SELECT holdfast.now()), attempts = attempts + 1
    WHERE id = (
        SELECT id FROM holdfast.live WHERE id = :id AND state || '' = 'ready' AND queue || '' = :queue
            AND NOT EXISTS (SELECT FROM holdfast.queue WHERE queue.name = :queue AND queue.paused)
        FOR UPDATE SKIP LOCKED)
    RETURNING id, token, kind, queue, attempts, poison_suspect, priority, due_at
)
SELECT id AS job_id, token, kind, queue, holdfast.payload_of(id) AS payload,
    attempts AS attempt, true AS started, poison_suspect, priority, due_at,
    holdfast.checkpoint_of(id) AS checkpoint
FROM taken

-- name: get_memory_profiles
SELECT name, samples, mean, variance, largest FROM holdfast.memory_profile WHERE name = ANY(:names::text[])

-- name: list_memory_profiles
SELECT name, samples, mean, variance, largest FROM holdfast.memory_profile ORDER BY name LIMIT :limit::bigint

-- name: lock_memory_profiles
-- In the order of their names, so that nobody waits for each other.
SELECT name, samples, mean, variance, largest FROM holdfast.memory_profile
WHERE name = ANY(:names::text[]) ORDER BY name FOR UPDATE

-- name: save_memory_profiles
INSERT INTO holdfast.memory_profile (name, samples, mean, variance, largest, updated_at)
SELECT name, samples, mean, variance, largest, (SELECT holdfast.now())
FROM jsonb_to_recordset(:profile::jsonb) AS profile (name text, samples integer, mean double precision,
    variance double precision, largest bigint)
ORDER BY name
ON CONFLICT (name) DO UPDATE SET samples = excluded.samples, mean = excluded.mean, variance = excluded.variance,
    largest = excluded.largest, updated_at = excluded.updated_at

-- name: prune_memory_profiles
DELETE FROM holdfast.memory_profile WHERE name = ANY(ARRAY(
    SELECT name FROM holdfast.memory_profile WHERE updated_at < (SELECT holdfast.now()) - :age::interval
    ORDER BY updated_at LIMIT :limit::bigint FOR UPDATE SKIP LOCKED))
RETURNING name

-- name: insert_decisions
INSERT INTO holdfast.autoscaler_decision (at, queue, host, worker, action, job_id, slots, text)
SELECT (SELECT holdfast.now()), queue, :host, :worker, action, job_id, slots, text
FROM jsonb_to_recordset(:decision::jsonb) AS decision (queue text, action text, job_id bigint, slots integer, text text)

-- name: list_decisions
-- The last ones of a queue, the newest first.
SELECT at, queue, host, worker, action, job_id, slots, text FROM holdfast.autoscaler_decision
WHERE queue = :queue ORDER BY id DESC LIMIT :limit::bigint

-- name: prune_decisions
DELETE FROM holdfast.autoscaler_decision WHERE id = ANY(ARRAY(
    SELECT id FROM holdfast.autoscaler_decision WHERE at < (SELECT holdfast.now()) - :age::interval
    ORDER BY at LIMIT :limit::bigint FOR UPDATE SKIP LOCKED))
RETURNING id
