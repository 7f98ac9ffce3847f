-- Autoscaler: candidates, memory profiles and decisions.

-- fragment: memory_profile_columns
name, samples, mean, variance, largest

-- name: get_memory_profiles
-- Read memory profiles by name.
SELECT {memory_profile_columns} FROM holdfast.memory_profile WHERE name = ANY(:names::text[])

-- name: lock_memory_profiles
-- Lock memory profiles in name order, so that two workers cannot deadlock.
SELECT {memory_profile_columns} FROM holdfast.memory_profile
WHERE name = ANY(:names::text[]) ORDER BY name FOR UPDATE

-- name: save_memory_profiles
-- Write memory profiles.
INSERT INTO holdfast.memory_profile ({memory_profile_columns}, updated_at)
SELECT {memory_profile_columns}, (SELECT holdfast.now())
FROM jsonb_to_recordset(:profile::jsonb) AS profile (name text, samples integer, mean double precision,
    variance double precision, largest bigint)
WHERE true ORDER BY name
ON CONFLICT (name) DO UPDATE SET samples = excluded.samples, mean = excluded.mean, variance = excluded.variance,
    largest = excluded.largest, updated_at = excluded.updated_at

-- name: insert_decisions
-- Append decisions of an autoscaler.
INSERT INTO holdfast.autoscaler_decision (at, queue, host, worker, action, job_id, slots, text)
SELECT (SELECT holdfast.now()), queue, :host, :worker, action, job_id, slots, text
FROM jsonb_to_recordset(:decision::jsonb) AS decision (queue text, action text, job_id bigint, slots integer, text text)

-- name: list_decisions
-- List the newest decisions for a queue.
SELECT at, queue, host, worker, action, job_id, slots, text FROM holdfast.autoscaler_decision
WHERE queue = :queue ORDER BY id DESC LIMIT :limit::bigint
