-- fragment: live_with_job
-- A live job and its request.
holdfast_live AS live JOIN holdfast_job AS job ON job.id = live.id

-- fragment: claimed_columns
-- The first columns of a lease.
id AS job_id, token, kind, queue,
    (SELECT payload FROM holdfast_job AS job WHERE job.id = holdfast_live.id) AS payload

-- fragment: leases_with_live
-- The live rows of :leases, a JSON object {"17": {"token": 3, ...}}.
-- planner: CROSS JOIN keeps this order, so that each lease is one primary-key lookup.
json_each(:leases) AS lease CROSS JOIN holdfast_live AS live ON live.id = CAST(lease.key AS INTEGER)

-- name: claim
-- Claim the best ready jobs of unlimited queues, over all lanes. A lane is a queue and a kind that the worker serves.
-- no_prefetch jobs are claimed only with :mark, which records the start. If one of the queues is limited, no job is
-- claimed and the only row has no id: the caller then uses claim_limited.
UPDATE holdfast_live SET state = 'running', token = token + 1, worker = :worker,
    claimed_at = :now, lease_expires_at = :now + :lease_duration,
    started_at = CASE WHEN :mark THEN :now END,
    attempts = attempts + CASE WHEN :mark THEN 1 ELSE 0 END
WHERE id IN (
    SELECT candidate.id
    FROM json_each(:queues) AS queues CROSS JOIN json_each(:kinds) AS kinds CROSS JOIN holdfast_live AS candidate
    WHERE NOT EXISTS (
            SELECT 1 FROM holdfast_queue AS queue
            WHERE queue.name IN (SELECT value FROM json_each(:queues))
                AND (queue.run_limit IS NOT NULL OR queue.worker_limit IS NOT NULL))
        AND NOT EXISTS (SELECT 1 FROM holdfast_queue AS queue WHERE queue.name = queues.value AND queue.paused)
        AND candidate.id IN (   -- the first ready jobs of the lane
            SELECT id FROM holdfast_live
            WHERE state = 'ready' AND queue = queues.value AND kind = kinds.value AND (:mark OR NOT no_prefetch)
            ORDER BY priority DESC, due_at, id LIMIT :limit)
    ORDER BY candidate.priority DESC, candidate.due_at, candidate.id LIMIT :limit)
RETURNING {claimed_columns}, attempts + CASE WHEN :mark THEN 0 ELSE 1 END AS attempt, :mark AS started,
    poison_suspect, priority, due_at,
    CASE WHEN token > 1 THEN (SELECT checkpoint FROM holdfast_progress
        WHERE job_id = holdfast_live.id) END AS checkpoint;
SELECT NULL AS job_id, 0 AS token, '' AS kind, '' AS queue, '' AS payload, 0 AS attempt, 0 AS started,
    0 AS poison_suspect, 0 AS priority, NULL AS due_at, NULL AS checkpoint
FROM holdfast_queue
WHERE name IN (SELECT value FROM json_each(:queues)) AND (run_limit IS NOT NULL OR worker_limit IS NOT NULL) LIMIT 1

-- name: claim_limited
-- Claim from all queues, up to the free slots of limited ones. The caller holds their locks (lock_limited_queues).
WITH capacity AS MATERIALIZED (     -- free slots per queue: the smaller of the global and the per-worker limit
    SELECT queues.value AS name, queue.run_limit IS NOT NULL OR queue.worker_limit IS NOT NULL AS limited,
        max(0, min(
            coalesce(queue.run_limit - (
                SELECT count(*) FROM holdfast_live AS live
                WHERE live.queue = queue.name AND live.lease_expires_at IS NOT NULL), :limit),
            coalesce(queue.worker_limit - (
                SELECT count(*) FROM holdfast_live AS live
                WHERE live.queue = queue.name AND live.lease_expires_at IS NOT NULL AND live.worker = :worker), :limit)
        )) AS slots
    FROM json_each(:queues) AS queues LEFT JOIN holdfast_queue AS queue ON queue.name = queues.value
    WHERE queue.paused IS NOT 1
), ranked AS (                      -- the first ready jobs of each lane, ranked within their queue
    SELECT candidate.id, candidate.priority, candidate.due_at, capacity.slots, row_number() OVER (
        PARTITION BY capacity.name ORDER BY candidate.priority DESC, candidate.due_at, candidate.id) AS queue_rank
    FROM capacity CROSS JOIN json_each(:kinds) AS kinds CROSS JOIN holdfast_live AS candidate
    WHERE candidate.id IN (
        SELECT id FROM holdfast_live
        WHERE state = 'ready' AND queue = capacity.name AND kind = kinds.value
            AND (:mark OR capacity.limited OR NOT no_prefetch)
        ORDER BY priority DESC, due_at, id LIMIT :limit)
)
UPDATE holdfast_live SET state = 'running', token = token + 1, worker = :worker,
    -- jobs of limited queues start at once
    claimed_at = :now, lease_expires_at = :now + :lease_duration,
    started_at = CASE WHEN :mark OR queue IN (SELECT name FROM capacity WHERE limited) THEN :now END,
    attempts = attempts + CASE WHEN :mark OR queue IN (SELECT name FROM capacity WHERE limited) THEN 1 ELSE 0 END
WHERE id IN (SELECT id FROM ranked WHERE queue_rank <= slots ORDER BY priority DESC, due_at, id LIMIT :limit)
RETURNING {claimed_columns}, attempts + CASE WHEN started_at IS NULL THEN 1 ELSE 0 END AS attempt,
    started_at IS NOT NULL AS started, poison_suspect, priority, due_at,
    (SELECT checkpoint FROM holdfast_progress WHERE job_id = holdfast_live.id) AS checkpoint

-- name: read_requests
-- Read the requests for a holder whose leases need no renewal yet.
SELECT live.id AS job_id, 0 AS renewed, live.requested FROM {leases_with_live}
WHERE live.token = lease.value->>'token' AND live.state = 'running'

-- name: renew_leases
-- Renew all leases of a worker, record the starts of jobs that have begun, and return requests for the holder.
UPDATE holdfast_live SET lease_expires_at = :now + (lease.value->>'lease_duration'),
    attempts = attempts + CASE WHEN started_at IS NULL AND lease.value->>'mark' THEN 1 ELSE 0 END,
    started_at = CASE WHEN started_at IS NULL AND lease.value->>'mark' THEN :now ELSE started_at END
FROM json_each(:leases) AS lease
WHERE holdfast_live.id = CAST(lease.key AS INTEGER) AND token = lease.value->>'token' AND state = 'running'
RETURNING holdfast_live.id AS job_id, 1 AS renewed, requested

-- name: settle_done
-- Finish jobs that succeeded: delete the live row, append the finished one.
INSERT INTO holdfast_finished (id, state, queue, kind, priority, due_at, attempts, crashes, token, worker,
    started_at, finished_at, reason, result)
SELECT live.id, 'done', live.queue, live.kind, live.priority, live.due_at,
    live.attempts + CASE WHEN live.started_at IS NULL THEN 1 ELSE 0 END, live.crashes, live.token, live.worker,
    coalesce(:now - (lease.value->>'ran'), live.started_at, live.claimed_at), :now, 'done', lease.value->>'result'
FROM {leases_with_live}
WHERE live.token = lease.value->>'token' AND live.state = 'running';
DELETE FROM holdfast_live
WHERE id IN (
    SELECT live.id FROM {leases_with_live}
    WHERE live.token = lease.value->>'token' AND live.state = 'running')
RETURNING id, has_dependents

-- name: list_settled
-- List which of these settlements are already recorded, so that a repeated settle is a success.
SELECT finished.id
FROM json_each(:leases) AS lease CROSS JOIN holdfast_finished AS finished ON finished.id = CAST(lease.key AS INTEGER)
WHERE finished.token = lease.value->>'token' AND finished.reason = lease.value->>'reason'
UNION
SELECT attempt.job_id
FROM json_each(:leases) AS lease CROSS JOIN holdfast_attempt AS attempt ON attempt.job_id = CAST(lease.key AS INTEGER)
WHERE attempt.token = lease.value->>'token' AND attempt.reason = lease.value->>'reason'

-- name: lock_leases
-- Lock running jobs and read the numbers that judge() needs.
SELECT {lease_columns} FROM {leases_with_live}
JOIN holdfast_job AS job ON job.id = live.id
WHERE live.token = lease.value->>'token' AND live.state = 'running'
ORDER BY live.id

-- name: return_jobs
-- Return running jobs to ready, scheduled or held. raised is 1 on take-over, so that the old token is refused.
UPDATE holdfast_live SET state = verdict.value->>'state', attempts = verdict.value->>'attempts',
    crashes = verdict.value->>'crashes', token = token + (verdict.value->>'raised'),
    poison_suspect = verdict.value->>'poison_suspect', no_prefetch = verdict.value->>'no_prefetch',
    note = coalesce(verdict.value->>'note', CASE WHEN verdict.value->>'state' = 'held' THEN note END),
    due_at = coalesce(:now + (verdict.value->>'delay'), due_at),
    requested = NULL, worker = NULL, claimed_at = NULL, started_at = NULL, lease_expires_at = NULL
FROM json_each(:verdict) AS verdict
WHERE holdfast_live.id = CAST(verdict.key AS INTEGER) AND token = verdict.value->>'token' AND state = 'running'

-- name: finish_jobs
-- Finish running jobs as dead or cancelled.
INSERT INTO holdfast_finished (id, state, queue, kind, priority, due_at, attempts, crashes, token, worker,
    started_at, finished_at, reason, error)
SELECT live.id, verdict.value->>'state', live.queue, live.kind, live.priority, live.due_at, verdict.value->>'attempts',
    verdict.value->>'crashes', live.token + (verdict.value->>'raised'), live.worker,
    coalesce(:now - (verdict.value->>'ran'), live.started_at, live.claimed_at), :now,
    verdict.value->>'reason', verdict.value->>'error'
FROM json_each(:verdict) AS verdict CROSS JOIN holdfast_live AS live ON live.id = CAST(verdict.key AS INTEGER)
WHERE live.token = verdict.value->>'token' AND live.state = 'running';
DELETE FROM holdfast_live
WHERE id IN (
    SELECT live.id
    FROM json_each(:verdict) AS verdict CROSS JOIN holdfast_live AS live ON live.id = CAST(verdict.key AS INTEGER)
    WHERE live.token = verdict.value->>'token' AND live.state = 'running')

-- name: release_unstarted
-- Return prefetched jobs that have not started to the queue, at no cost and without a trace.
UPDATE holdfast_live SET state = 'ready', worker = NULL, claimed_at = NULL, lease_expires_at = NULL
FROM json_each(:leases) AS lease
WHERE holdfast_live.id = CAST(lease.key AS INTEGER) AND token = lease.value->>'token' AND state = 'running'
    AND started_at IS NULL AND requested IS NULL
RETURNING holdfast_live.id

-- name: read_next_due
-- Read the time until the next scheduled job is due. It is negative when one is overdue.
-- planner: due_at > 0 makes SQLite read live_due in order; without it, it sorts all scheduled jobs.
SELECT due_at - :now AS wait FROM holdfast_live WHERE state = 'scheduled' AND due_at > 0 ORDER BY due_at, id LIMIT 1
