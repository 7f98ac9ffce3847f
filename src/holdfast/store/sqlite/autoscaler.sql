-- name: list_ready_jobs
-- List the first ready jobs of a queue and kind that this build may claim, with the columns that forecast their memory.
SELECT live.id AS job_id, job.label, job.payload, job.on_lost, live.priority
FROM {readers} AS readers CROSS JOIN holdfast_live AS live CROSS JOIN holdfast_job AS job
WHERE job.id = live.id AND live.id IN (
    SELECT id FROM holdfast_live WHERE state = 'ready' AND queue = :queue AND kind = :kind AND reader = readers.name
    ORDER BY priority DESC, due_at, id LIMIT :limit)
ORDER BY live.priority DESC, live.due_at, live.id LIMIT :limit

-- name: claim_job
-- Claim one chosen job, if it is still ready.
SELECT {leases_after_claim} FROM {live_with_job}
WHERE live.id = :id AND live.state = 'ready' AND live.queue = :queue
    AND live.priority >= coalesce(
        (SELECT {least_priority} FROM holdfast_queue AS queue WHERE queue.name = :queue), -2147483648)
    AND NOT EXISTS (SELECT 1 FROM holdfast_stop_switch);
UPDATE holdfast_live SET state = 'running', token = token + 1, worker = :worker,
    claimed_at = :now, lease_expires_at = :now + :lease_duration
WHERE id IN (SELECT value FROM json_each(:chosen))
