-- Autoscaling on SQLite: who is in line, who begins, what programs take, what was decided.

-- name: list_ready_jobs
-- The first ready jobs of a queue and kind, in their order, with what tells how much they will take.
SELECT live.id AS job_id, job.label, job.payload, job.on_lost, live.poison_suspect
FROM holdfast_live AS live CROSS JOIN holdfast_job AS job
WHERE live.state = 'ready' AND live.queue = :queue AND live.kind = :kind AND job.id = live.id
ORDER BY live.priority DESC, live.due_at, live.id LIMIT :limit

-- name: claim_job
-- One job that was chosen, if it is still there to be taken. Its start is started: it begins at once.
UPDATE holdfast_live SET state = 'running', token = token + 1, worker = :worker,
    claimed_at = :now, lease_expires_at = :now + :lease_duration, started_at = :now, attempts = attempts + 1
WHERE id = :id AND state = 'ready' AND queue = :queue
    AND NOT EXISTS (SELECT 1 FROM holdfast_queue AS queue WHERE queue.name = :queue AND queue.paused)
RETURNING id AS job_id, token, kind, queue,
    (SELECT payload FROM holdfast_job AS job WHERE job.id = holdfast_live.id) AS payload,
    attempts AS attempt, 1 AS started, poison_suspect, priority, due_at,
    (SELECT checkpoint FROM holdfast_progress WHERE job_id = holdfast_live.id) AS checkpoint

-- name: get_memory_profiles
SELECT name, samples, mean, variance, largest FROM holdfast_memory_profile
WHERE name IN (SELECT value FROM json_each(:names))

-- name: list_memory_profiles
SELECT name, samples, mean, variance, largest FROM holdfast_memory_profile ORDER BY name LIMIT :limit

-- name: lock_memory_profiles
SELECT name, samples, mean, variance, largest FROM holdfast_memory_profile
WHERE name IN (SELECT value FROM json_each(:names)) ORDER BY name

-- name: save_memory_profiles
INSERT INTO holdfast_memory_profile (name, samples, mean, variance, largest, updated_at)
SELECT profile.value->>'name', profile.value->>'samples', profile.value->>'mean', profile.value->>'variance',
    profile.value->>'largest', :now
FROM json_each(:profile) AS profile WHERE true
ON CONFLICT (name) DO UPDATE SET samples = excluded.samples, mean = excluded.mean, variance = excluded.variance,
    largest = excluded.largest, updated_at = excluded.updated_at

-- name: prune_memory_profiles
DELETE FROM holdfast_memory_profile WHERE name IN (
    SELECT name FROM holdfast_memory_profile WHERE updated_at < :now - :age ORDER BY updated_at LIMIT :limit)
RETURNING name

-- name: insert_decisions
INSERT INTO holdfast_autoscaler_decision (at, queue, host, worker, action, job_id, slots, text)
SELECT :now, decision.value->>'queue', :host, :worker, decision.value->>'action', decision.value->>'job_id',
    decision.value->>'slots', decision.value->>'text'
FROM json_each(:decision) AS decision

-- name: list_decisions
-- The last ones of a queue, the newest first.
SELECT at, queue, host, worker, action, job_id, slots, text FROM holdfast_autoscaler_decision
WHERE queue = :queue ORDER BY id DESC LIMIT :limit

-- name: prune_decisions
DELETE FROM holdfast_autoscaler_decision WHERE id IN (
    SELECT id FROM holdfast_autoscaler_decision WHERE at < :now - :age ORDER BY at LIMIT :limit)
RETURNING id
