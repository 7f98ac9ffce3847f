-- name: list_ready_jobs
-- List the first ready jobs of a queue and kind that this build may claim, with the columns that forecast their memory.
-- planner: LATERAL with LIMIT 1 forces a primary-key lookup, as in live_with_job.
SELECT candidate.id AS job_id, job.label, job.payload::text AS payload, job.on_lost, candidate.priority
FROM {readers} AS readers (name) CROSS JOIN LATERAL (
    SELECT id, priority, due_at FROM holdfast.live
    WHERE state = 'ready' AND holdfast.same(queue, :queue) AND holdfast.same(kind, :kind)
        AND holdfast.same(reader, readers.name)
    ORDER BY priority DESC, due_at, id LIMIT :limit::bigint) AS candidate
CROSS JOIN LATERAL (SELECT label, payload, on_lost FROM holdfast.job WHERE job.id = candidate.id LIMIT 1) AS job
ORDER BY candidate.priority DESC, candidate.due_at, candidate.id LIMIT :limit::bigint

-- name: claim_job
-- Claim one chosen job, if it is still ready.
-- planner: || '' hides state and queue, so that the plan keeps the primary key.
WITH claimed AS (
    UPDATE holdfast.live AS live SET state = 'running', worker = :worker, token = {next_token},
        claimed_at = (SELECT holdfast.now()), lease_expires_at = (SELECT holdfast.now()) + :lease_duration::interval
    WHERE id = (
        SELECT id FROM holdfast.live WHERE id = :id AND state || '' = 'ready' AND queue || '' = :queue
            AND priority >= coalesce((SELECT {least_priority} FROM holdfast.queue WHERE queue.name = :queue), -2147483648)
            AND NOT EXISTS (SELECT FROM holdfast.stop_switch)
        FOR UPDATE SKIP LOCKED)
    RETURNING id, token, kind, kind_version, queue, attempts, no_prefetch, losses, priority, due_at, worker
)
SELECT id AS job_id, token, kind, queue, holdfast.payload_of(id) AS payload,
    attempts + 1 AS attempt, no_prefetch, losses, priority, due_at,
    holdfast.checkpoint_of(id) AS checkpoint, kind_version,
    (SELECT timeout FROM holdfast.job WHERE job.id = claimed.id) AS timeout,
    (SELECT plan::text FROM holdfast.job WHERE job.id = claimed.id) AS plan, worker
FROM claimed
