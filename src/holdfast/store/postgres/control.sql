-- What people do to jobs, on PostgreSQL.

-- name: lock_live_jobs
SELECT id, state FROM holdfast.live WHERE id = ANY(:ids::bigint[]) ORDER BY id FOR UPDATE

-- name: lock_finished_jobs
SELECT id FROM holdfast.finished WHERE id = ANY(:ids::bigint[]) ORDER BY id FOR UPDATE

-- name: request_job_control
-- The holder learns of it with its next renewal. A cancel outweighs a pause.
UPDATE holdfast.live SET requested = :requested, note = coalesce(:note, note)
WHERE id = ANY(:ids::bigint[]) AND state = 'running' AND requested IS DISTINCT FROM :requested
    AND requested IS DISTINCT FROM 'cancel'
RETURNING id

-- name: withdraw_pause_request
UPDATE holdfast.live SET requested = NULL, note = NULL
WHERE id = ANY(:ids::bigint[]) AND state = 'running' AND requested = 'pause'
RETURNING id

-- name: release_held_jobs
-- A person lets a held job go. With dependencies it first waits, to be judged anew. One that is out of attempts gets them
-- all again, as with a retry: no run is ever one too many.
UPDATE holdfast.live SET note = NULL,
    attempts = CASE WHEN attempts >= (SELECT max_attempts FROM holdfast.job WHERE job.id = live.id)
        THEN 0 ELSE attempts END,
    crashes = CASE WHEN crashes >= (SELECT max_crashes FROM holdfast.job WHERE job.id = live.id)
        THEN 0 ELSE crashes END,
    state = CASE
    WHEN EXISTS (SELECT FROM holdfast.dependency WHERE dependency.job_id = live.id) THEN 'waiting'
    WHEN due_at > (SELECT holdfast.now()) THEN 'scheduled' ELSE 'ready' END
WHERE id = ANY(:ids::bigint[]) AND state = 'held'
RETURNING id, state

-- name: run_retries_now
-- A job that waits for its retry runs now. (The odd comparison keeps the plan on the primary key.)
UPDATE holdfast.live SET state = 'ready', due_at = (SELECT holdfast.now())
WHERE id = ANY(:ids::bigint[]) AND state || '' = 'scheduled' AND attempts > 0
RETURNING id

-- name: set_priority
UPDATE holdfast.live SET priority = :priority WHERE id = ANY(:ids::bigint[]) RETURNING id

-- name: set_memory
-- A program that was killed for its memory gets more of it. It has ended: nobody can claim it meanwhile.
UPDATE holdfast.job SET payload = jsonb_set(payload::jsonb, '{memory}', to_jsonb(:memory::bigint))::json
WHERE id = ANY(:ids::bigint[]) AND kind = 'command'
    AND (SELECT count(*) FROM holdfast.live WHERE live.id = job.id) = 0
RETURNING id

-- name: set_queue
-- A running job counts in its queue's limit and stays there.
UPDATE holdfast.live SET queue = :queue WHERE id = ANY(:ids::bigint[]) AND state <> 'running' RETURNING id

-- name: set_due_time
UPDATE holdfast.live SET due_at = :due_at, state = CASE
    WHEN state IN ('held', 'waiting') THEN state
    WHEN :due_at > (SELECT holdfast.now()) THEN 'scheduled' ELSE 'ready' END
WHERE id = ANY(:ids::bigint[]) AND state <> 'running'
RETURNING id

-- name: lock_idle_jobs
SELECT id FROM holdfast.live WHERE id = ANY(:ids::bigint[]) AND state <> 'running' ORDER BY id FOR UPDATE

-- name: read_payloads
-- In a statement of its own: that of the locks would see the time before the wait for them.
SELECT id, payload::text FROM holdfast.job WHERE id = ANY(:ids::bigint[])

-- name: set_payloads
-- The token rises: a claim that has begun already reads the payload anew.
WITH changed AS (
    UPDATE holdfast.live SET token = token + 1
    WHERE id = ANY(ARRAY(SELECT jsonb_object_keys(:changed::jsonb)::bigint)) AND state <> 'running'
    RETURNING id
)
UPDATE holdfast.job SET payload = (:changed::jsonb->job.id::text->>'payload')::json
FROM changed WHERE job.id = changed.id
RETURNING job.id

-- name: lock_unsuccessful_jobs
SELECT finished.id, finished.kind, job.key
FROM holdfast.finished CROSS JOIN LATERAL (SELECT key FROM holdfast.job WHERE job.id = finished.id LIMIT 1) AS job
WHERE finished.id = ANY(:ids::bigint[]) AND (finished.state = 'done') IS FALSE
ORDER BY finished.id FOR UPDATE OF finished

-- name: retry_jobs
-- Back to life with all its attempts; the token goes on from where it was. With dependencies it first waits,
-- to be judged anew.
WITH gone AS (
    DELETE FROM holdfast.finished WHERE id = ANY(:ids::bigint[]) AND (state = 'done') IS FALSE RETURNING *
)
INSERT INTO holdfast.live (id, state, queue, kind, priority, due_at, token, no_prefetch, has_dependents)
SELECT gone.id, CASE WHEN EXISTS (SELECT FROM holdfast.dependency WHERE dependency.job_id = gone.id) THEN 'waiting' ELSE 'ready' END,
    gone.queue, gone.kind, gone.priority, (SELECT holdfast.now()), gone.token,
    (SELECT on_lost <> 'retry' FROM holdfast.job WHERE job.id = gone.id),
    EXISTS (SELECT FROM holdfast.dependency WHERE dependency.dependency_id = gone.id)
FROM gone
RETURNING id, state

-- name: lock_done_jobs
SELECT finished.id, finished.kind, job.key
FROM holdfast.finished CROSS JOIN LATERAL (SELECT key FROM holdfast.job WHERE job.id = finished.id LIMIT 1) AS job
WHERE finished.id = ANY(:ids::bigint[]) AND finished.state || '' = 'done' AND finished.kind = :kind
ORDER BY finished.id FOR UPDATE OF finished

-- name: rerun_done_jobs
-- One that is done begins anew: what only its columns told becomes rows of its history, and what it had reached is
-- forgotten.
WITH gone AS (
    DELETE FROM holdfast.finished WHERE id = ANY(:ids::bigint[]) AND state || '' = 'done' RETURNING *
), kept AS (
    INSERT INTO holdfast.attempt (job_id, token, number, worker, started_at, finished_at, reason)
    SELECT id, token, attempts, worker, started_at, finished_at, 'done' FROM gone ON CONFLICT DO NOTHING
), told AS (
    INSERT INTO holdfast.event (job_id, at, name, actor)
    SELECT gone.id, fact.at, fact.name, 'holdfast:worker'
    FROM gone CROSS JOIN LATERAL (
        VALUES (1, coalesce(gone.started_at, gone.finished_at), 'started'), (2, gone.finished_at, 'done')) AS fact (place, at, name)
    ORDER BY gone.id, fact.place
), forgotten AS (
    DELETE FROM holdfast.progress WHERE job_id = ANY(ARRAY(SELECT id FROM gone))
), undone AS (
    DELETE FROM holdfast.step WHERE job_id = ANY(ARRAY(SELECT id FROM gone))
)
INSERT INTO holdfast.live (id, state, queue, kind, priority, due_at, token, no_prefetch, has_dependents)
SELECT gone.id, CASE WHEN EXISTS (SELECT FROM holdfast.dependency WHERE dependency.job_id = gone.id) THEN 'waiting' ELSE 'ready' END,
    gone.queue, gone.kind, gone.priority, (SELECT holdfast.now()), gone.token,
    (SELECT on_lost <> 'retry' FROM holdfast.job WHERE job.id = gone.id),
    EXISTS (SELECT FROM holdfast.dependency WHERE dependency.dependency_id = gone.id)
FROM gone
RETURNING id, state

-- name: restore_keys
-- Revived jobs get their keys back; take_keys holds the locks.
INSERT INTO holdfast.key AS taken (kind, key, job_id, scope)
SELECT kind, key, job_id, 'live' FROM jsonb_to_recordset(:requested::jsonb) AS requested (kind text, key text, job_id bigint)
ON CONFLICT (kind, key) DO UPDATE SET job_id = excluded.job_id

-- name: list_live_dependents
-- Which of these jobs a live job dependencies that is none of them.
SELECT DISTINCT dependency_id FROM holdfast.dependency
WHERE dependency_id = ANY(:ids::bigint[]) AND job_id <> ALL(:ids::bigint[])
    AND (SELECT true FROM holdfast.live WHERE live.id = dependency.job_id)

-- name: insert_events
INSERT INTO holdfast.event (job_id, at, name, actor, detail)
SELECT job_id, (SELECT holdfast.now()), name, :actor, detail::json
FROM jsonb_to_recordset(:events::jsonb) AS fact (job_id bigint, name text, detail text)

-- name: lock_expired_jobs
-- Ended jobs past their time, but never one that a live job dependencies.
SELECT id FROM holdfast.finished
WHERE state = :state AND finished_at < (SELECT holdfast.now()) - :age::interval AND NOT EXISTS (
    SELECT FROM holdfast.dependency
    WHERE dependency.dependency_id = finished.id AND (SELECT true FROM holdfast.live WHERE live.id = dependency.job_id)
    OFFSET 0)
ORDER BY finished_at, id LIMIT :limit::bigint
FOR UPDATE SKIP LOCKED

-- name: delete_jobs
-- All rows of these jobs. Keys that are still taken stay.
WITH no_live AS (DELETE FROM holdfast.live WHERE id = ANY(:ids::bigint[])),
no_finished AS (DELETE FROM holdfast.finished WHERE id = ANY(:ids::bigint[])),
no_attempt AS (DELETE FROM holdfast.attempt WHERE job_id = ANY(:ids::bigint[])),
no_event AS (DELETE FROM holdfast.event WHERE job_id = ANY(:ids::bigint[])),
no_step AS (DELETE FROM holdfast.step WHERE job_id = ANY(:ids::bigint[])),
no_trace AS (DELETE FROM holdfast.trace WHERE job_id = ANY(:ids::bigint[])),
no_progress AS (DELETE FROM holdfast.progress WHERE job_id = ANY(:ids::bigint[])),
no_need AS (DELETE FROM holdfast.dependency WHERE job_id = ANY(:ids::bigint[])),
no_key AS (
    DELETE FROM holdfast.key
    WHERE job_id = ANY(:ids::bigint[])
        AND (scope = 'live' OR scope = 'period' AND expires_at <= (SELECT holdfast.now())))
DELETE FROM holdfast.job WHERE id = ANY(:ids::bigint[])
RETURNING id

-- name: prune_keys
-- Keys whose period is over. One that a live job has stays: it is taken until the job ends.
DELETE FROM holdfast.key
WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM holdfast.key WHERE expires_at <= (SELECT holdfast.now())
        AND NOT EXISTS (SELECT FROM holdfast.live WHERE live.id = job_id OFFSET 0)
    ORDER BY expires_at LIMIT :limit::bigint FOR UPDATE SKIP LOCKED))
RETURNING key

-- name: prune_workers
DELETE FROM holdfast.worker
WHERE id = ANY(ARRAY(
    SELECT id FROM holdfast.worker WHERE seen_at < (SELECT holdfast.now()) - :age::interval
    ORDER BY seen_at LIMIT :limit::bigint FOR UPDATE SKIP LOCKED))
RETURNING id
