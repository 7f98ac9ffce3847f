-- Leases: claim, renew, settle, release and take over. Every write of a holder is fenced by id, token, worker and
-- state 'running': an old token changes no row, nor does that of another worker.

-- fragment: lease_columns
live.id AS job_id, live.kind, live.queue, live.token, live.attempts, job.max_attempts, live.crashes,
    live.losses, live.no_prefetch, job.max_crashes, job.on_lost, job.retry::text, live.started_at IS NOT NULL AS started,
    live.requested, live.has_dependents, live.worker, live.claimed_at, live.started_at, live.refusals::text, job.plan::text

-- fragment: least_priority
-- The least priority that starts in a queue. A paused one starts only the highest: callbacks, which report a failure.
CASE WHEN queue.paused THEN 2147483647 ELSE -2147483648 END

-- fragment: is_slot_only
-- Whether a candidate of a lane is claimed for a free slot alone. Commands are claimed ahead while they are short: the
-- start of each is recorded just before it runs.
lane.slot_only OR (candidate.no_prefetch AND lane.kind <> 'command') OR candidate.losses > 0

-- name: start_command
-- Record the start of a command and extend its lease, unless its queue was paused, the store stopped or it was cancelled
-- after the claim. A locked row is left out. Returns whether commands are switched off, and the label. Idempotent.
UPDATE holdfast.live AS live SET attempts = attempts + CASE WHEN started_at IS NULL THEN 1 ELSE 0 END,
    started_at = coalesce(started_at, (SELECT holdfast.now())),
    lease_expires_at = (SELECT holdfast.now()) + :lease_duration::interval
WHERE id = (SELECT id FROM holdfast.live WHERE id = :id FOR UPDATE SKIP LOCKED) AND {is_holder}
    AND (started_at IS NOT NULL OR (requested IS NULL AND NOT EXISTS (SELECT 1 FROM holdfast.stop_switch)
        AND NOT EXISTS (
            SELECT 1 FROM holdfast.queue AS queue WHERE queue.name = live.queue AND live.priority < {least_priority})))
RETURNING EXISTS (SELECT 1 FROM holdfast.command_switch) AS is_off,
    (SELECT label FROM holdfast.job AS job WHERE job.id = :id) AS label

-- name: lock_limited_queues
-- Lock the queues that have a limit, in name order, so that claims on them run one after another.
SELECT name FROM holdfast.queue
WHERE {queue_lock_wait} AND name = ANY(:queues::text[]) AND (run_limit IS NOT NULL OR worker_limit IS NOT NULL)
ORDER BY name FOR UPDATE

-- name: find_limited_queue
-- Find out whether one of these queues has a limit.
SELECT name FROM holdfast.queue
WHERE name = ANY(:queues::text[]) AND (run_limit IS NOT NULL OR worker_limit IS NOT NULL) LIMIT 1

-- name: count_unfinished
-- Count the jobs of these queues and kinds that are ready or running, each up to :limit in a lane or a queue. With
-- :every_queue, those of all queues but private ones.
WITH served (queue) AS (
    SELECT value FROM unnest(:queues::text[]) AS queues (value)
    UNION
    SELECT name FROM ({ready_queues}) AS ready_queue WHERE :every_queue::boolean
        AND substr(name, 1, length(:private::text)) <> :private::text
)
SELECT coalesce(sum(jobs), 0) FROM (
    -- planner: a count with LIMIT in each lane keeps live_ready; one scan for all reads every ready job.
    SELECT (SELECT count(*) FROM (
        SELECT FROM holdfast.live AS live
        WHERE state = 'ready' AND holdfast.same(live.queue, served.queue) AND holdfast.same(live.kind, kinds.value)
        LIMIT :limit::bigint) AS ready) AS jobs
    FROM served CROSS JOIN unnest(:kinds::text[]) AS kinds (value)
    UNION ALL
    SELECT (SELECT count(*) FROM (
        SELECT FROM holdfast.live AS live
        WHERE live.queue = queues.value AND live.lease_expires_at IS NOT NULL AND live.kind = ANY(:kinds::text[])
        LIMIT :limit::bigint) AS running)
    FROM unnest(:queues::text[]) AS queues (value)
    UNION ALL
    SELECT count(*) FROM (
        SELECT FROM holdfast.live AS live
        WHERE :every_queue::boolean AND substr(live.queue, 1, length(:private::text)) <> :private::text
            AND NOT live.queue = ANY(:queues::text[])
            AND live.lease_expires_at IS NOT NULL AND live.kind = ANY(:kinds::text[])
        LIMIT :limit::bigint) AS running_anywhere) AS counted

-- name: list_current_tokens
-- The tokens of the running jobs of a worker that cannot write at the moment.
SELECT id, token FROM holdfast.live WHERE id = ANY(:ids::bigint[]) AND worker = :worker AND state = 'running'

-- name: find_expired_lease
-- Find out whether any lease has expired, within the last :window.
SELECT id FROM holdfast.live
WHERE lease_expires_at < (SELECT holdfast.now()) AND lease_expires_at >= (SELECT holdfast.now()) - :window::interval
LIMIT 1

-- name: lock_expired_leases
-- Lock expired leases and read the numbers that judge() needs.
-- SKIP LOCKED leaves out leases that are being settled or renewed now.
SELECT {lease_columns} FROM {live_with_job}
WHERE {lock_wait} AND {where} AND live.lease_expires_at < (SELECT holdfast.now())
ORDER BY live.queue, live.lease_expires_at LIMIT :limit::bigint
FOR UPDATE OF live SKIP LOCKED

-- name: lock_leases_of_worker
-- Lock the leases of a worker whose process has exited, before they expire, and read the numbers that judge() needs.
SELECT {lease_columns} FROM {live_with_job}
WHERE {lock_wait} AND {where} AND live.lease_expires_at IS NOT NULL AND live.worker = :worker
ORDER BY live.queue, live.lease_expires_at LIMIT :limit::bigint
FOR UPDATE OF live SKIP LOCKED

-- name: without_effects
-- Condition: a job whose end has no effects on others. A concurrent mark_dependencies holds the lock of its row; after the
-- wait for it, the condition is checked again.
NOT has_dependents

-- name: without_units
-- Condition: a job that has no units of a batch in flight.
NOT EXISTS (SELECT FROM holdfast.in_flight AS in_flight WHERE in_flight.job_id = live.id)

-- name: lock_unknown_leases
-- Lock the leases of a worker that the worker does not know of. A locked one expires later.
SELECT {lease_columns} FROM {live_with_job}
WHERE live.queue = ANY(:queues::text[]) AND live.lease_expires_at IS NOT NULL AND live.worker = :worker
    AND NOT live.id = ANY(:known::bigint[])
FOR UPDATE OF live SKIP LOCKED

-- name: insert_attempts
-- Record runs that did not simply succeed.
INSERT INTO holdfast.attempt (job_id, token, number, worker, started_at, finished_at, reason, exit_code, error)
SELECT job_id, token, number, worker, coalesce((SELECT holdfast.now()) - ran, started_at),
    (SELECT holdfast.now()) - age, reason, exit_code, error
FROM jsonb_to_recordset(:run::jsonb) AS run (job_id bigint, token bigint, number integer, worker text,
    started_at timestamptz, ran interval, age interval, reason text, exit_code integer, error text)

-- name: not_due
-- Condition: a job that is due later.
due_at > (SELECT holdfast.now())

-- name: promote_due_jobs
-- Make scheduled jobs ready once they are due.
UPDATE holdfast.live SET state = 'ready'
WHERE id = ANY(ARRAY(
    SELECT id FROM holdfast.live WHERE state = 'scheduled' AND due_at <= (SELECT holdfast.now())
    ORDER BY due_at, id LIMIT :limit::bigint FOR UPDATE SKIP LOCKED))
RETURNING id, queue, kind, priority, due_at

-- name: delete_orphans
-- Delete live rows that still have no request.
DELETE FROM holdfast.live AS live
WHERE {brief_lock_wait} AND id = ANY(:ids::bigint[])
    AND NOT EXISTS (SELECT FROM holdfast.job AS job WHERE job.id = live.id)
RETURNING id, queue, kind
