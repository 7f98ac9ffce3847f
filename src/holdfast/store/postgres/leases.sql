-- fragment: leases_ids
-- The job ids of :leases, a JSON object {"17": {"token": 3, ...}}.
-- planner: its values are looked up by the row's id. A join's order is the planner's choice, and with stale
-- statistics it compares every row with every parameter.
ARRAY(SELECT jsonb_object_keys(:leases::jsonb)::bigint)

-- fragment: live_with_job
-- planner: LATERAL with LIMIT 1 forces one primary-key lookup per row; a join may hash the whole job table.
holdfast.live CROSS JOIN LATERAL (SELECT * FROM holdfast.job WHERE job.id = live.id LIMIT 1) AS job

-- fragment: claimed_payload
-- A claim that began before a payload changed must not return the old one: payload_of reads it afresh. Only jobs whose
-- token has risen before can be affected.
CASE WHEN token > 1 THEN holdfast.payload_of(id)
        ELSE (SELECT payload::text FROM holdfast.job WHERE job.id = claimed.id) END

-- name: claim
-- Claim the best ready jobs of unlimited queues, over all lanes. A lane is a queue and a kind that the worker serves.
-- no_prefetch jobs are claimed only with :mark, which records the start. If one of the queues is limited, no job is
-- claimed and the only row has no id: the caller then uses claim_limited.
WITH limited AS (           -- the queues that have a limit
    SELECT name FROM holdfast.queue
    WHERE name = ANY(:queues::text[]) AND (run_limit IS NOT NULL OR worker_limit IS NOT NULL)
), lane AS (                -- every queue that is not paused, with every kind
    SELECT queues.name AS queue, kinds.name AS kind
    FROM unnest(:queues::text[]) AS queues (name) CROSS JOIN unnest(:kinds::text[]) AS kinds (name)
    WHERE NOT EXISTS (SELECT FROM limited)
        AND NOT EXISTS (SELECT FROM holdfast.queue WHERE queue.name = queues.name AND queue.paused)
), claimed AS (
    UPDATE holdfast.live SET state = 'running', token = token + 1, worker = :worker,
        claimed_at = (SELECT holdfast.now()), lease_expires_at = (SELECT holdfast.now()) + :lease_duration::interval,
        started_at = CASE WHEN :mark THEN (SELECT holdfast.now()) END,
        attempts = attempts + CASE WHEN :mark THEN 1 ELSE 0 END
    -- planner: = ANY(ARRAY(...)) keeps the primary key; UPDATE ... FROM a CTE scans the whole table.
    WHERE id = ANY(ARRAY(
        SELECT candidate.id
        -- planner: LATERAL with LIMIT reads the first entries of each lane in live_ready; a join sorts all ready jobs.
        FROM lane CROSS JOIN LATERAL (
            SELECT id, priority, due_at FROM holdfast.live
            WHERE state = 'ready' AND queue = lane.queue AND kind = lane.kind AND (:mark OR NOT no_prefetch)
            ORDER BY priority DESC, due_at, id LIMIT :limit::bigint
            FOR UPDATE SKIP LOCKED) AS candidate
        ORDER BY candidate.priority DESC, candidate.due_at, candidate.id LIMIT :limit::bigint))
    RETURNING id, token, kind, queue, attempts, poison_suspect, priority, due_at
)
SELECT id AS job_id, token, kind, queue, {claimed_payload} AS payload,
    attempts + CASE WHEN :mark THEN 0 ELSE 1 END AS attempt, :mark AS started, poison_suspect, priority, due_at,
    CASE WHEN token > 1 THEN holdfast.checkpoint_of(id) END AS checkpoint
FROM claimed
UNION ALL
SELECT NULL, 0, '', '', '', 0, false, false, 0, NULL, NULL WHERE EXISTS (SELECT FROM limited)

-- name: claim_limited
-- Claim from all queues, up to the free slots of limited ones. The caller holds their locks (lock_limited_queues).
-- The counts must not share a statement with the locks: they would see the rows as of before the wait.
WITH capacity AS (          -- free slots per queue: the smaller of the global and the per-worker limit
    SELECT queues.name, queue.run_limit IS NOT NULL OR queue.worker_limit IS NOT NULL AS limited,
        greatest(0, coalesce(least(queue.run_limit - running.everywhere, queue.worker_limit - running.here),
            :limit::bigint)) AS slots
    FROM unnest(:queues::text[]) AS queues (name) LEFT JOIN holdfast.queue ON queue.name = queues.name
    CROSS JOIN LATERAL (
        SELECT count(*) AS everywhere, count(*) FILTER (WHERE live.worker = :worker) AS here
        FROM holdfast.live WHERE live.queue = queue.name AND live.lease_expires_at IS NOT NULL) AS running
    WHERE queue.paused IS NOT TRUE
), ranked AS (              -- the first ready jobs of each lane, ranked within their queue
    SELECT candidate.*, capacity.slots, row_number() OVER (
        PARTITION BY capacity.name ORDER BY candidate.priority DESC, candidate.due_at, candidate.id) AS queue_rank
    -- planner: LATERAL with LIMIT keeps live_ready, as in claim.
    FROM capacity CROSS JOIN unnest(:kinds::text[]) AS kinds (name) CROSS JOIN LATERAL (
        SELECT id, priority, due_at FROM holdfast.live
        WHERE state = 'ready' AND queue = capacity.name AND kind = kinds.name
            AND (:mark OR capacity.limited OR NOT no_prefetch)
        ORDER BY priority DESC, due_at, id LIMIT least(capacity.slots, :limit::bigint)
        FOR UPDATE SKIP LOCKED) AS candidate
), claimed AS (             -- jobs of limited queues start at once
    UPDATE holdfast.live SET state = 'running', token = token + 1, worker = :worker,
        claimed_at = (SELECT holdfast.now()), lease_expires_at = (SELECT holdfast.now()) + :lease_duration::interval,
        started_at = CASE WHEN :mark OR queue = ANY(ARRAY(SELECT name FROM capacity WHERE limited))
            THEN (SELECT holdfast.now()) END,
        attempts = attempts + CASE WHEN :mark OR queue = ANY(ARRAY(SELECT name FROM capacity WHERE limited))
            THEN 1 ELSE 0 END
    WHERE id = ANY(ARRAY(
        SELECT id FROM ranked WHERE queue_rank <= slots ORDER BY priority DESC, due_at, id LIMIT :limit::bigint))
    RETURNING id, token, kind, queue, attempts, poison_suspect, priority, due_at, started_at IS NOT NULL AS started
)
SELECT id AS job_id, token, kind, queue, {claimed_payload} AS payload,
    attempts + CASE WHEN started THEN 0 ELSE 1 END AS attempt, started, poison_suspect, priority, due_at,
    CASE WHEN token > 1 THEN holdfast.checkpoint_of(id) END AS checkpoint
FROM claimed

-- name: read_requests
-- Read the requests for a holder whose leases need no renewal yet.
SELECT id AS job_id, false AS renewed, requested FROM holdfast.live
WHERE id = ANY({leases_ids})
    AND token = (:leases::jsonb->id::text->>'token')::bigint AND state = 'running'

-- name: renew_leases
-- Renew all leases of a worker, record the starts of jobs that have begun, and return requests for the holder.
-- A user's long transaction on one job must not cost the other leases: SKIP LOCKED leaves that row out. Its lease is
-- still valid, and is reported as not renewed.
WITH owned AS (
    SELECT id, requested FROM holdfast.live
    WHERE id = ANY({leases_ids})
        AND token = (:leases::jsonb->id::text->>'token')::bigint AND state = 'running'
), renewed AS (
    UPDATE holdfast.live SET
        lease_expires_at = (SELECT holdfast.now()) + (:leases::jsonb->id::text->>'lease_duration')::interval,
        attempts = attempts + CASE
            WHEN started_at IS NULL AND (:leases::jsonb->id::text->>'mark')::boolean THEN 1 ELSE 0 END,
        started_at = CASE
            WHEN started_at IS NULL AND (:leases::jsonb->id::text->>'mark')::boolean THEN (SELECT holdfast.now())
            ELSE started_at END
    WHERE id = ANY(ARRAY(
            SELECT id FROM holdfast.live WHERE id = ANY({leases_ids})
            ORDER BY id FOR UPDATE SKIP LOCKED))
        AND token = (:leases::jsonb->id::text->>'token')::bigint AND state = 'running'
    RETURNING id
)
SELECT id AS job_id, id IN (SELECT id FROM renewed) AS renewed, requested FROM owned

-- name: settle_done
-- Finish jobs that succeeded: delete the live row, append the finished one.
-- lock_timeout: a row that a user's transaction has locked must not hold up the others for long.
WITH deleted AS (
    DELETE FROM holdfast.live
    WHERE (SELECT set_config('lock_timeout', '2s', true)) IS NOT NULL
        AND id = ANY({leases_ids})
        AND token = (:leases::jsonb->id::text->>'token')::bigint AND state = 'running'
    RETURNING *
), inserted AS (
    INSERT INTO holdfast.finished (id, state, queue, kind, priority, due_at, attempts, crashes, token, worker,
        started_at, finished_at, reason, result)
    SELECT id, 'done', queue, kind, priority, due_at, attempts + CASE WHEN started_at IS NULL THEN 1 ELSE 0 END,
        crashes, token, worker,
        coalesce((SELECT holdfast.now()) - (:leases::jsonb->id::text->>'ran')::interval, started_at, claimed_at),
        (SELECT holdfast.now()), 'done', (:leases::jsonb->id::text->>'result')::json
    FROM deleted
)
SELECT id, has_dependents FROM deleted

-- name: list_settled
-- List which of these settlements are already recorded, so that a repeated settle is a success.
SELECT id FROM holdfast.finished
WHERE id = ANY({leases_ids})
    AND token = (:leases::jsonb->id::text->>'token')::bigint AND reason = :leases::jsonb->id::text->>'reason'
UNION
SELECT job_id FROM holdfast.attempt
WHERE job_id = ANY({leases_ids})
    AND token = (:leases::jsonb->job_id::text->>'token')::bigint AND reason = :leases::jsonb->job_id::text->>'reason'

-- name: lock_leases
-- Lock running jobs and read the numbers that judge() needs.
-- The locks last until the verdict is written; the wait for them is limited, as in settle_done.
SELECT {lease_columns} FROM {live_with_job}
WHERE (SELECT set_config('lock_timeout', '2s', true)) IS NOT NULL
    AND live.id = ANY({leases_ids})
    AND live.token = (:leases::jsonb->live.id::text->>'token')::bigint AND live.state = 'running'
ORDER BY live.id FOR UPDATE OF live

-- name: return_jobs
-- Return running jobs to ready, scheduled or held. raised is 1 on take-over, so that the old token is refused.
UPDATE holdfast.live SET
    state = :verdict::jsonb->id::text->>'state',
    attempts = (:verdict::jsonb->id::text->>'attempts')::integer,
    crashes = (:verdict::jsonb->id::text->>'crashes')::integer,
    token = token + (:verdict::jsonb->id::text->>'raised')::integer,
    poison_suspect = (:verdict::jsonb->id::text->>'poison_suspect')::boolean,
    no_prefetch = (:verdict::jsonb->id::text->>'no_prefetch')::boolean,
    note = coalesce(:verdict::jsonb->id::text->>'note',
        CASE WHEN :verdict::jsonb->id::text->>'state' = 'held' THEN note END),
    due_at = coalesce((SELECT holdfast.now()) + (:verdict::jsonb->id::text->>'delay')::interval, due_at),
    requested = NULL, worker = NULL, claimed_at = NULL, started_at = NULL, lease_expires_at = NULL
WHERE id = ANY(ARRAY(SELECT jsonb_object_keys(:verdict::jsonb)::bigint))
    AND token = (:verdict::jsonb->id::text->>'token')::bigint AND state = 'running'

-- name: finish_jobs
-- Finish running jobs as dead or cancelled.
WITH deleted AS (
    DELETE FROM holdfast.live
    WHERE id = ANY(ARRAY(SELECT jsonb_object_keys(:verdict::jsonb)::bigint))
        AND token = (:verdict::jsonb->id::text->>'token')::bigint AND state = 'running'
    RETURNING *, :verdict::jsonb->id::text AS verdict
)
INSERT INTO holdfast.finished (id, state, queue, kind, priority, due_at, attempts, crashes, token, worker,
    started_at, finished_at, reason, error)
SELECT id, verdict->>'state', queue, kind, priority, due_at, (verdict->>'attempts')::integer,
    (verdict->>'crashes')::integer, token + (verdict->>'raised')::integer, worker,
    coalesce((SELECT holdfast.now()) - (verdict->>'ran')::interval, started_at, claimed_at), (SELECT holdfast.now()),
    verdict->>'reason', verdict->>'error'
FROM deleted

-- name: release_unstarted
-- Return prefetched jobs that have not started to the queue, at no cost and without a trace.
UPDATE holdfast.live SET state = 'ready', worker = NULL, claimed_at = NULL, lease_expires_at = NULL
WHERE id = ANY({leases_ids})
    AND token = (:leases::jsonb->id::text->>'token')::bigint AND state = 'running' AND started_at IS NULL
    AND requested IS NULL
RETURNING id

-- name: read_next_due
-- Read the time until the next scheduled job is due. It is negative when one is overdue.
SELECT due_at - (SELECT holdfast.now()) AS wait FROM holdfast.live WHERE state = 'scheduled'
ORDER BY due_at, id LIMIT 1
