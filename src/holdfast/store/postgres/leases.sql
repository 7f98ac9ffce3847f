-- Leases on PostgreSQL: claim, renew, mark, settle, take over.
--
-- Every write of a holder names id and token and asks for state 'running': an older token
-- changes no row.
--
-- Tables of parameters arrive as one JSON object, {"17": {"token": 3, ...}}, and are looked up by
-- the row's id instead of being joined: a join's order is the planner's to choose, and with
-- statistics from another timestamp it chooses to compare every row with every parameter.

-- name: claim
-- For each lane (a queue and a kind that the worker knows) the first ready jobs, then the best
-- of all. Paused queues are left out; no_prefetch jobs go only to those who mark. When one of the
-- queues is limited nothing is taken, and a row without an id says: ask claim_ranked.
WITH limited AS (
    SELECT name FROM holdfast.queue
    WHERE name = ANY(:queues::text[]) AND (run_limit IS NOT NULL OR worker_limit IS NOT NULL)
), lane AS (
    SELECT queues.name AS queue, kinds.name AS kind
    FROM unnest(:queues::text[]) AS queues (name) CROSS JOIN unnest(:kinds::text[]) AS kinds (name)
    WHERE NOT EXISTS (SELECT FROM limited)
        AND NOT EXISTS (SELECT FROM holdfast.queue WHERE queue.name = queues.name AND queue.paused)
), taken AS (
    UPDATE holdfast.live SET state = 'running', token = token + 1, worker = :worker,
        claimed_at = (SELECT holdfast.now()), lease_expires_at = (SELECT holdfast.now()) + :lease_duration::interval,
        started_at = CASE WHEN :mark THEN (SELECT holdfast.now()) END,
        attempts = attempts + CASE WHEN :mark THEN 1 ELSE 0 END
    WHERE id = ANY(ARRAY(
        SELECT first.id
        FROM lane CROSS JOIN LATERAL (
            SELECT id, priority, due_at FROM holdfast.live
            WHERE state = 'ready' AND queue = lane.queue AND kind = lane.kind AND (:mark OR NOT no_prefetch)
            ORDER BY priority DESC, due_at, id LIMIT :limit::bigint
            FOR UPDATE SKIP LOCKED) AS first
        ORDER BY first.priority DESC, first.due_at, first.id LIMIT :limit::bigint))
    RETURNING id, token, kind, queue, attempts, poison_suspect, priority, due_at
)
SELECT id AS job_id, token, kind, queue,
    CASE WHEN token > 1 THEN holdfast.payload_of(id)
        ELSE (SELECT payload::text FROM holdfast.job WHERE job.id = taken.id) END AS payload,
    attempts + CASE WHEN :mark THEN 0 ELSE 1 END AS attempt, :mark AS started, poison_suspect, priority, due_at,
    CASE WHEN token > 1 THEN holdfast.checkpoint_of(id) END AS checkpoint
FROM taken
UNION ALL
SELECT NULL, 0, '', '', '', 0, false, false, 0, NULL, NULL WHERE EXISTS (SELECT FROM limited)

-- name: lock_limited_queues
-- Claims of one limited queue come one after the other. The count must follow in a statement
-- of its own: in this one it would see the time before the wait for the lock.
SELECT name FROM holdfast.queue
WHERE name = ANY(:queues::text[]) AND (run_limit IS NOT NULL OR worker_limit IS NOT NULL) ORDER BY name FOR UPDATE

-- name: claim_limited
-- The best of all queues, of limited ones no more than they have free slots, under their locks.
-- Jobs of limited queues come started.
WITH served AS (
    SELECT queues.name, queue.run_limit IS NOT NULL OR queue.worker_limit IS NOT NULL AS limited,
        greatest(0, coalesce(least(queue.run_limit - running.everywhere, queue.worker_limit - running.here),
            :limit::bigint)) AS slots
    FROM unnest(:queues::text[]) AS queues (name) LEFT JOIN holdfast.queue ON queue.name = queues.name
    CROSS JOIN LATERAL (
        SELECT count(*) AS everywhere, count(*) FILTER (WHERE live.worker = :worker) AS here
        FROM holdfast.live WHERE live.queue = queue.name AND live.lease_expires_at IS NOT NULL) AS running
    WHERE queue.paused IS NOT TRUE
), ranked AS (
    SELECT first.*, served.slots,
        row_number() OVER (PARTITION BY served.name ORDER BY first.priority DESC, first.due_at, first.id) AS place
    FROM served CROSS JOIN unnest(:kinds::text[]) AS kinds (name) CROSS JOIN LATERAL (
        SELECT id, priority, due_at FROM holdfast.live
        WHERE state = 'ready' AND queue = served.name AND kind = kinds.name AND (:mark OR served.limited OR NOT no_prefetch)
        ORDER BY priority DESC, due_at, id LIMIT least(served.slots, :limit::bigint)
        FOR UPDATE SKIP LOCKED) AS first
), taken AS (
    UPDATE holdfast.live SET state = 'running', token = token + 1, worker = :worker,
        claimed_at = (SELECT holdfast.now()), lease_expires_at = (SELECT holdfast.now()) + :lease_duration::interval,
        started_at = CASE WHEN :mark OR queue = ANY(ARRAY(SELECT name FROM served WHERE limited))
            THEN (SELECT holdfast.now()) END,
        attempts = attempts + CASE WHEN :mark OR queue = ANY(ARRAY(SELECT name FROM served WHERE limited))
            THEN 1 ELSE 0 END
    WHERE id = ANY(ARRAY(
        SELECT id FROM ranked WHERE place <= slots ORDER BY priority DESC, due_at, id LIMIT :limit::bigint))
    RETURNING id, token, kind, queue, attempts, poison_suspect, priority, due_at, started_at IS NOT NULL AS started
)
SELECT id AS job_id, token, kind, queue,
    CASE WHEN token > 1 THEN holdfast.payload_of(id)
        ELSE (SELECT payload::text FROM holdfast.job WHERE job.id = taken.id) END AS payload,
    attempts + CASE WHEN started THEN 0 ELSE 1 END AS attempt, started, poison_suspect, priority, due_at,
    CASE WHEN token > 1 THEN holdfast.checkpoint_of(id) END AS checkpoint
FROM taken

-- name: renew_leases
-- SKIP LOCKED: a long transaction of the user on one job must not cost the other leases.
-- A lease that was skipped is still the holder's, it was only not extended this time.
-- A run that is under way is started: from here on the loss of the holder costs an attempt.
WITH mine AS (
    SELECT id, requested FROM holdfast.live
    WHERE id = ANY(ARRAY(SELECT jsonb_object_keys(:leases::jsonb)::bigint))
        AND token = (:leases::jsonb->id::text->>'token')::bigint AND state = 'running'
), renewed AS (
    UPDATE holdfast.live SET lease_expires_at = (SELECT holdfast.now()) + (:leases::jsonb->id::text->>'lease_duration')::interval,
        attempts = attempts + CASE
            WHEN started_at IS NULL AND (:leases::jsonb->id::text->>'mark')::boolean THEN 1 ELSE 0 END,
        started_at = CASE
            WHEN started_at IS NULL AND (:leases::jsonb->id::text->>'mark')::boolean THEN (SELECT holdfast.now())
            ELSE started_at END
    WHERE id = ANY(ARRAY(
            SELECT id FROM holdfast.live WHERE id = ANY(ARRAY(SELECT jsonb_object_keys(:leases::jsonb)::bigint))
            ORDER BY id FOR UPDATE SKIP LOCKED))
        AND token = (:leases::jsonb->id::text->>'token')::bigint AND state = 'running'
    RETURNING id
)
SELECT id AS job_id, id IN (SELECT id FROM renewed) AS renewed, requested FROM mine

-- name: record_start
-- The durable start mark: from here on the loss of the holder costs an attempt.
UPDATE holdfast.live SET attempts = attempts + CASE WHEN started_at IS NULL THEN 1 ELSE 0 END,
    started_at = coalesce(started_at, (SELECT holdfast.now()))
WHERE id = :id AND token = :token AND state = 'running'
RETURNING attempts

-- name: settle_done
-- The common end, in one statement: the live row goes, the ended row comes. A row that a user's own
-- transaction has locked must not hold up the others for long, so the wait for locks is limited.
WITH gone AS (
    DELETE FROM holdfast.live
    WHERE (SELECT set_config('lock_timeout', '2s', true)) IS NOT NULL
        AND id = ANY(ARRAY(SELECT jsonb_object_keys(:leases::jsonb)::bigint))
        AND token = (:leases::jsonb->id::text->>'token')::bigint AND state = 'running'
    RETURNING *
), kept AS (
    INSERT INTO holdfast.finished (id, state, queue, kind, priority, due_at, attempts, crashes, token, worker,
        started_at, finished_at, reason, result)
    SELECT id, 'done', queue, kind, priority, due_at, attempts + CASE WHEN started_at IS NULL THEN 1 ELSE 0 END,
        crashes, token, worker,
        coalesce((SELECT holdfast.now()) - (:leases::jsonb->id::text->>'ran')::interval, started_at, claimed_at),
        (SELECT holdfast.now()), 'done', (:leases::jsonb->id::text->>'result')::json
    FROM gone
)
SELECT id, has_dependents FROM gone

-- name: list_settled
-- Ends that are recorded already, by this very token and outcome: a settle sent again is a success.
SELECT id FROM holdfast.finished
WHERE id = ANY(ARRAY(SELECT jsonb_object_keys(:leases::jsonb)::bigint))
    AND token = (:leases::jsonb->id::text->>'token')::bigint AND reason = :leases::jsonb->id::text->>'reason'
UNION
SELECT job_id FROM holdfast.attempt
WHERE job_id = ANY(ARRAY(SELECT jsonb_object_keys(:leases::jsonb)::bigint))
    AND token = (:leases::jsonb->job_id::text->>'token')::bigint AND reason = :leases::jsonb->job_id::text->>'reason'

-- name: lock_leases
-- The row's own numbers, for judge(): read under a lock that lasts until the verdict is written.
-- The wait for it is limited, as in settle_done.
SELECT live.id AS job_id, live.kind, live.queue, live.token, live.attempts, job.max_attempts, live.crashes,
    job.max_crashes, job.on_lost, job.retry::text, live.started_at IS NOT NULL AS started, live.requested,
    live.has_dependents, live.worker, live.claimed_at, live.started_at
FROM holdfast.live CROSS JOIN LATERAL (SELECT * FROM holdfast.job WHERE job.id = live.id LIMIT 1) AS job
WHERE (SELECT set_config('lock_timeout', '2s', true)) IS NOT NULL
    AND live.id = ANY(ARRAY(SELECT jsonb_object_keys(:leases::jsonb)::bigint))
    AND live.token = (:leases::jsonb->live.id::text->>'token')::bigint AND live.state = 'running'
ORDER BY live.id FOR UPDATE OF live

-- name: find_expired_lease
SELECT id FROM holdfast.live WHERE lease_expires_at < (SELECT holdfast.now()) LIMIT 1

-- name: lock_expired_leases
-- Leases that nobody renewed. SKIP LOCKED leaves out those that are being settled or renewed now.
SELECT live.id AS job_id, live.kind, live.queue, live.token, live.attempts, job.max_attempts, live.crashes,
    job.max_crashes, job.on_lost, job.retry::text, live.started_at IS NOT NULL AS started, live.requested,
    live.has_dependents, live.worker, live.claimed_at, live.started_at
FROM holdfast.live CROSS JOIN LATERAL (SELECT * FROM holdfast.job WHERE job.id = live.id LIMIT 1) AS job
WHERE live.lease_expires_at < (SELECT holdfast.now())
ORDER BY live.queue, live.lease_expires_at LIMIT :limit::bigint
FOR UPDATE OF live SKIP LOCKED

-- name: lock_unknown_leases
-- What a worker holds without knowing of it.
SELECT live.id AS job_id, live.kind, live.queue, live.token, live.attempts, job.max_attempts, live.crashes,
    job.max_crashes, job.on_lost, job.retry::text, live.started_at IS NOT NULL AS started, live.requested,
    live.has_dependents, live.worker, live.claimed_at, live.started_at
FROM holdfast.live CROSS JOIN LATERAL (SELECT * FROM holdfast.job WHERE job.id = live.id LIMIT 1) AS job
WHERE live.queue = ANY(:queues::text[]) AND live.lease_expires_at IS NOT NULL AND live.worker = :worker
    AND NOT live.id = ANY(:known::bigint[])
FOR UPDATE OF live

-- name: return_jobs
-- A run that did not end its job: it is ready, scheduled or held again. *raised* is 1 when the
-- job is taken over, so that the old holder is shut out for good.
UPDATE holdfast.live SET
    state = :verdict::jsonb->id::text->>'state',
    attempts = (:verdict::jsonb->id::text->>'attempts')::integer,
    crashes = (:verdict::jsonb->id::text->>'crashes')::integer,
    token = token + (:verdict::jsonb->id::text->>'raised')::integer,
    poison_suspect = (:verdict::jsonb->id::text->>'poison_suspect')::boolean,
    no_prefetch = (:verdict::jsonb->id::text->>'no_prefetch')::boolean,
    note = coalesce(:verdict::jsonb->id::text->>'note', CASE WHEN :verdict::jsonb->id::text->>'state' = 'held' THEN note END),
    due_at = coalesce((SELECT holdfast.now()) + (:verdict::jsonb->id::text->>'delay')::interval, due_at),
    requested = NULL, worker = NULL, claimed_at = NULL, started_at = NULL, lease_expires_at = NULL
WHERE id = ANY(ARRAY(SELECT jsonb_object_keys(:verdict::jsonb)::bigint))
    AND token = (:verdict::jsonb->id::text->>'token')::bigint AND state = 'running'

-- name: finish_jobs
-- A run that ended its job otherwise than done.
WITH gone AS (
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
FROM gone

-- name: insert_attempts
INSERT INTO holdfast.attempt (job_id, token, number, worker, started_at, finished_at, reason, exit_code, error)
SELECT job_id, token, number, worker, coalesce((SELECT holdfast.now()) - ran, started_at), (SELECT holdfast.now()),
    reason, exit_code, error
FROM jsonb_to_recordset(:run::jsonb) AS run (job_id bigint, token bigint, number integer, worker text,
    started_at timestamptz, ran interval, reason text, exit_code integer, error text)

-- name: release_unstarted
-- Prefetched jobs that were never begun: back in their places, at no cost, leaving no trace.
UPDATE holdfast.live SET state = 'ready', worker = NULL, claimed_at = NULL, lease_expires_at = NULL
WHERE id = ANY(ARRAY(SELECT jsonb_object_keys(:leases::jsonb)::bigint))
    AND token = (:leases::jsonb->id::text->>'token')::bigint AND state = 'running' AND started_at IS NULL
    AND requested IS NULL
RETURNING id

-- name: read_next_due
-- How long until the next scheduled job is due: less than nothing when one is.
SELECT due_at - (SELECT holdfast.now()) AS wait FROM holdfast.live WHERE state = 'scheduled'
ORDER BY due_at, id LIMIT 1

-- name: promote_due_jobs
-- Scheduled jobs whose time has come become ready.
UPDATE holdfast.live SET state = 'ready'
WHERE id = ANY(ARRAY(
    SELECT id FROM holdfast.live WHERE state = 'scheduled' AND due_at <= (SELECT holdfast.now())
    ORDER BY due_at, id LIMIT :limit::bigint FOR UPDATE SKIP LOCKED))
RETURNING id

-- name: report_progress
-- Progress and checkpoint of a running job. What is not told stays as it was.
WITH holder AS (
    SELECT id FROM holdfast.live WHERE id = :id AND token = :token AND state = 'running' FOR NO KEY UPDATE
)
INSERT INTO holdfast.progress AS known (job_id, done, total, message, checkpoint, at)
SELECT id, :done, :total, :message, :checkpoint::json, (SELECT holdfast.now()) FROM holder
ON CONFLICT (job_id) DO UPDATE SET done = coalesce(excluded.done, known.done),
    total = coalesce(excluded.total, known.total), message = coalesce(excluded.message, known.message),
    checkpoint = coalesce(excluded.checkpoint, known.checkpoint), at = excluded.at
RETURNING job_id

-- name: list_steps
-- What earlier runs of a job have finished. *remaining* is how long a sleep goes on.
SELECT name, result::text, until - (SELECT holdfast.now()) AS remaining FROM holdfast.step WHERE job_id = :id

-- name: insert_step
-- The first result of a step stays, whoever asks again.
WITH holder AS (
    SELECT id FROM holdfast.live WHERE id = :id AND token = :token AND state = 'running' FOR NO KEY UPDATE
)
INSERT INTO holdfast.step AS known (job_id, name, result, until)
SELECT id, :name, :result::json, (SELECT holdfast.now()) + :delay::interval FROM holder
ON CONFLICT (job_id, name) DO UPDATE SET result = known.result
RETURNING name, result::text, until - (SELECT holdfast.now()) AS remaining
