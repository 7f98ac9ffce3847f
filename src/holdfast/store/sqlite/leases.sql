-- Leases on SQLite: claim, renew, mark, settle, take over.
-- Every write of a holder names id and token and asks for state 'running': an older token
-- changes no row. BEGIN IMMEDIATE stands for all the row locks of PostgreSQL.

-- name: claim
-- For each lane (a queue and a kind that the worker knows) the first ready jobs, then the best
-- of all. Paused queues are left out; no_prefetch jobs go only to those who mark. When one of the
-- queues is limited nothing is taken, and a row without an id says: ask claim_ranked.
UPDATE holdfast_live SET state = 'running', token = token + 1, worker = :worker,
    claimed_at = :now, lease_expires_at = :now + :lease_duration,
    started_at = CASE WHEN :mark THEN :now END,
    attempts = attempts + CASE WHEN :mark THEN 1 ELSE 0 END
WHERE id IN (
    SELECT first.id
    FROM json_each(:queues) AS queues CROSS JOIN json_each(:kinds) AS kinds CROSS JOIN holdfast_live AS first
    WHERE NOT EXISTS (
            SELECT 1 FROM holdfast_queue AS queue
            WHERE queue.name IN (SELECT value FROM json_each(:queues))
                AND (queue.run_limit IS NOT NULL OR queue.worker_limit IS NOT NULL))
        AND NOT EXISTS (SELECT 1 FROM holdfast_queue AS queue WHERE queue.name = queues.value AND queue.paused)
        AND first.id IN (
            SELECT id FROM holdfast_live
            WHERE state = 'ready' AND queue = queues.value AND kind = kinds.value AND (:mark OR NOT no_prefetch)
            ORDER BY priority DESC, due_at, id LIMIT :limit)
    ORDER BY first.priority DESC, first.due_at, first.id LIMIT :limit)
RETURNING id AS job_id, token, kind, queue,
    (SELECT payload FROM holdfast_job AS job WHERE job.id = holdfast_live.id) AS payload,
    attempts + CASE WHEN :mark THEN 0 ELSE 1 END AS attempt, :mark AS started, poison_suspect, priority, due_at,
    CASE WHEN token > 1 THEN (SELECT checkpoint FROM holdfast_progress WHERE job_id = holdfast_live.id) END AS checkpoint;
SELECT NULL AS job_id, 0 AS token, '' AS kind, '' AS queue, '' AS payload, 0 AS attempt, 0 AS started, 0 AS poison_suspect,
    0 AS priority, NULL AS due_at, NULL AS checkpoint
FROM holdfast_queue
WHERE name IN (SELECT value FROM json_each(:queues)) AND (run_limit IS NOT NULL OR worker_limit IS NOT NULL) LIMIT 1

-- name: lock_limited_queues
-- Claims come one after the other anyway.
SELECT name FROM holdfast_queue WHERE name IN (SELECT value FROM json_each(:queues)) ORDER BY name

-- name: claim_limited
-- The best of all queues, of limited ones no more than they have free slots. Jobs of limited
-- queues come started.
WITH served AS MATERIALIZED (
    SELECT queues.value AS name, queue.run_limit IS NOT NULL OR queue.worker_limit IS NOT NULL AS limited,
        max(0, min(
            coalesce(queue.run_limit - (
                SELECT count(*) FROM holdfast_live AS live
                WHERE live.queue = queue.name AND live.lease_expires_at IS NOT NULL), :limit),
            coalesce(queue.worker_limit - (
                SELECT count(*) FROM holdfast_live AS live
                WHERE live.queue = queue.name AND live.lease_expires_at IS NOT NULL AND live.worker = :worker), :limit))) AS slots
    FROM json_each(:queues) AS queues LEFT JOIN holdfast_queue AS queue ON queue.name = queues.value
    WHERE queue.paused IS NOT 1
), ranked AS (
    SELECT first.id, first.priority, first.due_at, served.slots,
        row_number() OVER (PARTITION BY served.name ORDER BY first.priority DESC, first.due_at, first.id) AS place
    FROM served CROSS JOIN json_each(:kinds) AS kinds CROSS JOIN holdfast_live AS first
    WHERE first.id IN (
        SELECT id FROM holdfast_live
        WHERE state = 'ready' AND queue = served.name AND kind = kinds.value AND (:mark OR served.limited OR NOT no_prefetch)
        ORDER BY priority DESC, due_at, id LIMIT :limit)
)
UPDATE holdfast_live SET state = 'running', token = token + 1, worker = :worker,
    claimed_at = :now, lease_expires_at = :now + :lease_duration,
    started_at = CASE WHEN :mark OR queue IN (SELECT name FROM served WHERE limited) THEN :now END,
    attempts = attempts + CASE WHEN :mark OR queue IN (SELECT name FROM served WHERE limited) THEN 1 ELSE 0 END
WHERE id IN (SELECT id FROM ranked WHERE place <= slots ORDER BY priority DESC, due_at, id LIMIT :limit)
RETURNING id AS job_id, token, kind, queue,
    (SELECT payload FROM holdfast_job AS job WHERE job.id = holdfast_live.id) AS payload,
    attempts + CASE WHEN started_at IS NULL THEN 1 ELSE 0 END AS attempt, started_at IS NOT NULL AS started, poison_suspect,
    priority, due_at, (SELECT checkpoint FROM holdfast_progress WHERE job_id = holdfast_live.id) AS checkpoint

-- name: renew_leases
-- A run that is under way is started: from here on the loss of the holder costs an attempt.
UPDATE holdfast_live SET lease_expires_at = :now + (held.value->>'lease_duration'),
    attempts = attempts + CASE WHEN started_at IS NULL AND held.value->>'mark' THEN 1 ELSE 0 END,
    started_at = CASE WHEN started_at IS NULL AND held.value->>'mark' THEN :now ELSE started_at END
FROM json_each(:leases) AS held
WHERE holdfast_live.id = CAST(held.key AS INTEGER) AND token = held.value->>'token' AND state = 'running'
RETURNING holdfast_live.id AS job_id, 1 AS renewed, requested

-- name: record_start
-- The durable start mark: from here on the loss of the holder costs an attempt.
UPDATE holdfast_live SET attempts = attempts + CASE WHEN started_at IS NULL THEN 1 ELSE 0 END,
    started_at = coalesce(started_at, :now)
WHERE id = :id AND token = :token AND state = 'running'
RETURNING attempts

-- name: settle_done
-- The common end: the ended row comes, then the live row goes.
INSERT INTO holdfast_finished (id, state, queue, kind, priority, due_at, attempts, crashes, token, worker,
    started_at, finished_at, reason, result)
SELECT live.id, 'done', live.queue, live.kind, live.priority, live.due_at,
    live.attempts + CASE WHEN live.started_at IS NULL THEN 1 ELSE 0 END, live.crashes, live.token, live.worker,
    coalesce(:now - (held.value->>'ran'), live.started_at, live.claimed_at), :now, 'done', held.value->>'result'
FROM json_each(:leases) AS held CROSS JOIN holdfast_live AS live ON live.id = CAST(held.key AS INTEGER)
WHERE live.token = held.value->>'token' AND live.state = 'running';
DELETE FROM holdfast_live
WHERE id IN (
    SELECT live.id FROM json_each(:leases) AS held CROSS JOIN holdfast_live AS live ON live.id = CAST(held.key AS INTEGER)
    WHERE live.token = held.value->>'token' AND live.state = 'running')
RETURNING id, has_dependents

-- name: list_settled
-- Ends that are recorded already, by this very token and outcome: a settle sent again is a success.
SELECT finished.id FROM json_each(:leases) AS held CROSS JOIN holdfast_finished AS finished ON finished.id = CAST(held.key AS INTEGER)
WHERE finished.token = held.value->>'token' AND finished.reason = held.value->>'reason'
UNION
SELECT attempt.job_id FROM json_each(:leases) AS held
CROSS JOIN holdfast_attempt AS attempt ON attempt.job_id = CAST(held.key AS INTEGER)
WHERE attempt.token = held.value->>'token' AND attempt.reason = held.value->>'reason'

-- name: lock_leases
-- The row's own numbers, for judge().
SELECT live.id AS job_id, live.kind, live.queue, live.token, live.attempts, job.max_attempts, live.crashes,
    job.max_crashes, job.on_lost, job.retry, live.started_at IS NOT NULL AS started, live.requested,
    live.has_dependents, live.worker, live.claimed_at, live.started_at
FROM json_each(:leases) AS held CROSS JOIN holdfast_live AS live ON live.id = CAST(held.key AS INTEGER)
JOIN holdfast_job AS job ON job.id = live.id
WHERE live.token = held.value->>'token' AND live.state = 'running'
ORDER BY live.id

-- name: find_expired_lease
SELECT id FROM holdfast_live WHERE lease_expires_at < :now LIMIT 1

-- name: lock_expired_leases
-- Leases that nobody renewed.
SELECT live.id AS job_id, live.kind, live.queue, live.token, live.attempts, job.max_attempts, live.crashes,
    job.max_crashes, job.on_lost, job.retry, live.started_at IS NOT NULL AS started, live.requested,
    live.has_dependents, live.worker, live.claimed_at, live.started_at
FROM holdfast_live AS live JOIN holdfast_job AS job ON job.id = live.id
WHERE live.lease_expires_at < :now
ORDER BY live.queue, live.lease_expires_at LIMIT :limit

-- name: lock_unknown_leases
-- What a worker holds without knowing of it.
SELECT live.id AS job_id, live.kind, live.queue, live.token, live.attempts, job.max_attempts, live.crashes,
    job.max_crashes, job.on_lost, job.retry, live.started_at IS NOT NULL AS started, live.requested,
    live.has_dependents, live.worker, live.claimed_at, live.started_at
FROM holdfast_live AS live JOIN holdfast_job AS job ON job.id = live.id
WHERE live.queue IN (SELECT value FROM json_each(:queues)) AND live.lease_expires_at IS NOT NULL AND live.worker = :worker
    AND live.id NOT IN (SELECT value FROM json_each(:known))

-- name: return_jobs
-- A run that did not end its job: it is ready, scheduled or held again. *raised* is 1 when the
-- job is taken over, so that the old holder is shut out for good.
UPDATE holdfast_live SET state = verdict.value->>'state', attempts = verdict.value->>'attempts', crashes = verdict.value->>'crashes',
    token = token + (verdict.value->>'raised'), poison_suspect = verdict.value->>'poison_suspect', no_prefetch = verdict.value->>'no_prefetch',
    note = coalesce(verdict.value->>'note', CASE WHEN verdict.value->>'state' = 'held' THEN note END),
    due_at = coalesce(:now + (verdict.value->>'delay'), due_at),
    requested = NULL, worker = NULL, claimed_at = NULL, started_at = NULL, lease_expires_at = NULL
FROM json_each(:verdict) AS verdict
WHERE holdfast_live.id = CAST(verdict.key AS INTEGER) AND token = verdict.value->>'token' AND state = 'running'

-- name: finish_jobs
-- A run that ended its job otherwise than done.
INSERT INTO holdfast_finished (id, state, queue, kind, priority, due_at, attempts, crashes, token, worker,
    started_at, finished_at, reason, error)
SELECT live.id, verdict.value->>'state', live.queue, live.kind, live.priority, live.due_at, verdict.value->>'attempts',
    verdict.value->>'crashes', live.token + (verdict.value->>'raised'), live.worker,
    coalesce(:now - (verdict.value->>'ran'), live.started_at, live.claimed_at), :now, verdict.value->>'reason', verdict.value->>'error'
FROM json_each(:verdict) AS verdict CROSS JOIN holdfast_live AS live ON live.id = CAST(verdict.key AS INTEGER)
WHERE live.token = verdict.value->>'token' AND live.state = 'running';
DELETE FROM holdfast_live
WHERE id IN (
    SELECT live.id FROM json_each(:verdict) AS verdict CROSS JOIN holdfast_live AS live ON live.id = CAST(verdict.key AS INTEGER)
    WHERE live.token = verdict.value->>'token' AND live.state = 'running')

-- name: insert_attempts
INSERT INTO holdfast_attempt (job_id, token, number, worker, started_at, finished_at, reason, exit_code, error)
SELECT run.value->>'job_id', run.value->>'token', run.value->>'number', run.value->>'worker', coalesce(:now - (run.value->>'ran'), run.value->>'started_at'), :now,
    run.value->>'reason', run.value->>'exit_code', run.value->>'error'
FROM json_each(:run) AS run

-- name: release_unstarted
-- Prefetched jobs that were never begun: back in their places, at no cost, leaving no trace.
UPDATE holdfast_live SET state = 'ready', worker = NULL, claimed_at = NULL, lease_expires_at = NULL
FROM json_each(:leases) AS held
WHERE holdfast_live.id = CAST(held.key AS INTEGER) AND token = held.value->>'token' AND state = 'running' AND started_at IS NULL
    AND requested IS NULL
RETURNING holdfast_live.id

-- name: read_next_due
-- How long until the next scheduled job is due: less than nothing when one is.
SELECT due_at - :now AS wait FROM holdfast_live WHERE state = 'scheduled' AND due_at > 0 ORDER BY due_at, id LIMIT 1

-- name: promote_due_jobs
-- Scheduled jobs whose time has come become ready.
UPDATE holdfast_live SET state = 'ready'
WHERE id IN (
    SELECT id FROM holdfast_live WHERE state = 'scheduled' AND due_at <= :now ORDER BY due_at, id LIMIT :limit)
RETURNING id

-- name: report_progress
-- Progress and checkpoint of a running job. What is not told stays as it was.
INSERT INTO holdfast_progress AS known (job_id, done, total, message, checkpoint, at)
SELECT id, :done, :total, :message, :checkpoint, :now
FROM holdfast_live WHERE id = :id AND token = :token AND state = 'running'
ON CONFLICT (job_id) DO UPDATE SET done = coalesce(excluded.done, known.done),
    total = coalesce(excluded.total, known.total), message = coalesce(excluded.message, known.message),
    checkpoint = coalesce(excluded.checkpoint, known.checkpoint), at = excluded.at
RETURNING job_id

-- name: list_steps
-- What earlier runs of a job have finished. *remaining* is how long a sleep goes on.
SELECT name, result, until - :now AS remaining FROM holdfast_step WHERE job_id = :id

-- name: insert_step
-- The first result of a step stays, whoever asks again.
INSERT INTO holdfast_step AS known (job_id, name, result, until)
SELECT id, :name, :result, :now + :delay
FROM holdfast_live WHERE id = :id AND token = :token AND state = 'running'
ON CONFLICT (job_id, name) DO UPDATE SET result = known.result
RETURNING name, result, until - :now AS remaining
