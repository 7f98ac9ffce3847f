-- Leases on SQLite: claim, renew, mark, settle, take over.
-- Every write of a holder names id and token and asks for state 'running': an older token
-- changes no row. BEGIN IMMEDIATE stands for all the row locks of PostgreSQL.

-- name: claim
-- For each lane (a queue and a kind that the worker knows) the first ready jobs, then the best
-- of all. Paused and limited queues are left out; careful jobs go only to those who mark.
UPDATE holdfast_live SET state = 'running', token = token + 1, worker = :worker,
    claimed_at = :now, lapses_at = :now + :term,
    started_at = CASE WHEN :mark THEN :now END,
    attempts = attempts + CASE WHEN :mark THEN 1 ELSE 0 END
WHERE id IN (
    SELECT first.id
    FROM json_each(:queues) AS queues CROSS JOIN json_each(:kinds) AS kinds CROSS JOIN holdfast_live AS first
    WHERE NOT EXISTS (
            SELECT 1 FROM holdfast_queue AS queue
            WHERE queue.name = queues.value
                AND (queue.paused OR queue.run_limit IS NOT NULL OR queue.worker_limit IS NOT NULL))
        AND first.id IN (
            SELECT id FROM holdfast_live
            WHERE state = 'ready' AND queue = queues.value AND kind = kinds.value AND (:mark OR NOT careful)
            ORDER BY priority DESC, due_at, id LIMIT :limit)
    ORDER BY first.priority DESC, first.due_at, first.id LIMIT :limit)
RETURNING id AS job_id, token, kind, queue, (SELECT payload FROM holdfast_job AS job WHERE job.id = holdfast_live.id) AS payload,
    attempts + CASE WHEN :mark THEN 0 ELSE 1 END AS attempt, :mark AS marked, suspect, priority, due_at,
    (SELECT checkpoint FROM holdfast_progress WHERE job_id = holdfast_live.id) AS checkpoint

-- name: limited_queues
SELECT name FROM holdfast_queue
WHERE name IN (SELECT value FROM json_each(:queues)) AND (run_limit IS NOT NULL OR worker_limit IS NOT NULL)

-- name: lock_queues
-- Claims come one after the other anyway.
SELECT name FROM holdfast_queue WHERE name IN (SELECT value FROM json_each(:queues)) ORDER BY name

-- name: claim_limited
-- As many as there are free slots; always marked.
WITH running AS (
    SELECT queue.name, queue.run_limit, queue.worker_limit, count(live.id) AS everywhere,
        count(live.id) FILTER (WHERE live.worker = :worker) AS here
    FROM holdfast_queue AS queue
    LEFT JOIN holdfast_live AS live ON live.queue = queue.name AND live.lapses_at IS NOT NULL
    WHERE queue.name IN (SELECT value FROM json_each(:queues)) AND NOT queue.paused
    GROUP BY queue.name
), free AS MATERIALIZED (
    SELECT name, max(0, min(coalesce(run_limit - everywhere, :limit), coalesce(worker_limit - here, :limit))) AS slots
    FROM running
), ranked AS (
    SELECT first.id, first.priority, first.due_at, free.slots,
        row_number() OVER (PARTITION BY free.name ORDER BY first.priority DESC, first.due_at, first.id) AS place
    FROM free CROSS JOIN json_each(:kinds) AS kinds CROSS JOIN holdfast_live AS first
    WHERE first.id IN (
        SELECT id FROM holdfast_live
        WHERE state = 'ready' AND queue = free.name AND kind = kinds.value
        ORDER BY priority DESC, due_at, id LIMIT :limit)
)
UPDATE holdfast_live SET state = 'running', token = token + 1, worker = :worker,
    claimed_at = :now, lapses_at = :now + :term, started_at = :now, attempts = attempts + 1
WHERE id IN (SELECT id FROM ranked WHERE place <= slots ORDER BY priority DESC, due_at, id LIMIT :limit)
RETURNING id AS job_id, token, kind, queue, (SELECT payload FROM holdfast_job AS job WHERE job.id = holdfast_live.id) AS payload,
    attempts AS attempt, 1 AS marked, suspect, priority, due_at,
    (SELECT checkpoint FROM holdfast_progress WHERE job_id = holdfast_live.id) AS checkpoint

-- name: renew
UPDATE holdfast_live SET lapses_at = :now + (held.value->>2)
FROM json_each(:held) AS held
WHERE holdfast_live.id = held.value->>0 AND token = held.value->>1 AND state = 'running'
RETURNING holdfast_live.id AS job_id, 1 AS renewed, cancel_wanted

-- name: mark
-- The durable start mark: from here on the loss of the holder costs an attempt.
UPDATE holdfast_live SET attempts = attempts + CASE WHEN started_at IS NULL THEN 1 ELSE 0 END,
    started_at = coalesce(started_at, :now)
WHERE id = :id AND token = :token AND state = 'running'
RETURNING attempts

-- name: settle_done
-- The common end: the ended row comes, then the live row goes.
INSERT INTO holdfast_ended (id, state, queue, kind, priority, due_at, attempts, crashes, token, worker,
    started_at, ended_at, reason, result)
SELECT live.id, 'done', live.queue, live.kind, live.priority, live.due_at,
    live.attempts + CASE WHEN live.started_at IS NULL THEN 1 ELSE 0 END, live.crashes, live.token, live.worker,
    coalesce(:now - (held.value->>3), live.started_at, live.claimed_at), :now, 'done', held.value->>2
FROM json_each(:held) AS held CROSS JOIN holdfast_live AS live ON live.id = held.value->>0
WHERE live.token = held.value->>1 AND live.state = 'running';
DELETE FROM holdfast_live
WHERE id IN (
    SELECT live.id FROM json_each(:held) AS held CROSS JOIN holdfast_live AS live ON live.id = held.value->>0
    WHERE live.token = held.value->>1 AND live.state = 'running')
RETURNING id, needed

-- name: settled_before
-- Ends that are recorded already, by this very token and outcome: a settle sent again is a success.
SELECT ended.id FROM json_each(:held) AS held CROSS JOIN holdfast_ended AS ended ON ended.id = held.value->>0
WHERE ended.token = held.value->>1 AND ended.reason = held.value->>2
UNION
SELECT attempt.job_id FROM json_each(:held) AS held
CROSS JOIN holdfast_attempt AS attempt ON attempt.job_id = held.value->>0
WHERE attempt.token = held.value->>1 AND attempt.reason = held.value->>2

-- name: lock_held
-- The row's own numbers, for judge().
SELECT live.id AS job_id, live.kind, live.queue, live.token, live.attempts, job.max_attempts, live.crashes,
    job.max_crashes, job.on_lost, job.retry, live.started_at IS NOT NULL AS marked, live.cancel_wanted,
    live.needed, live.worker, live.claimed_at, live.started_at
FROM json_each(:held) AS held CROSS JOIN holdfast_live AS live ON live.id = held.value->>0
JOIN holdfast_job AS job ON job.id = live.id
WHERE live.token = held.value->>1 AND live.state = 'running'
ORDER BY live.id

-- name: lock_lapsed
-- Leases that nobody renewed.
SELECT live.id AS job_id, live.kind, live.queue, live.token, live.attempts, job.max_attempts, live.crashes,
    job.max_crashes, job.on_lost, job.retry, live.started_at IS NOT NULL AS marked, live.cancel_wanted,
    live.needed, live.worker, live.claimed_at, live.started_at
FROM holdfast_live AS live JOIN holdfast_job AS job ON job.id = live.id
WHERE live.lapses_at < :now
ORDER BY live.lapses_at, live.id LIMIT :limit

-- name: put_back
-- A run that did not end its job: it is ready, scheduled or held again. *raised* is 1 when the
-- job is taken over, so that the old holder is shut out for good.
UPDATE holdfast_live SET state = verdict.value->>2, attempts = verdict.value->>3, crashes = verdict.value->>4,
    token = token + (verdict.value->>5), suspect = verdict.value->>6, careful = verdict.value->>7,
    note = verdict.value->>8,
    due_at = CASE WHEN verdict.value->>9 > 0 THEN :now + (verdict.value->>9) ELSE due_at END,
    worker = NULL, claimed_at = NULL, started_at = NULL, lapses_at = NULL
FROM json_each(:verdict) AS verdict
WHERE holdfast_live.id = verdict.value->>0 AND token = verdict.value->>1 AND state = 'running'

-- name: end_held
-- A run that ended its job otherwise than done.
INSERT INTO holdfast_ended (id, state, queue, kind, priority, due_at, attempts, crashes, token, worker,
    started_at, ended_at, reason, error)
SELECT live.id, verdict.value->>2, live.queue, live.kind, live.priority, live.due_at, verdict.value->>3,
    verdict.value->>4, live.token + (verdict.value->>5), live.worker,
    coalesce(:now - (verdict.value->>8), live.started_at, live.claimed_at), :now, verdict.value->>6, verdict.value->>7
FROM json_each(:verdict) AS verdict CROSS JOIN holdfast_live AS live ON live.id = verdict.value->>0
WHERE live.token = verdict.value->>1 AND live.state = 'running';
DELETE FROM holdfast_live
WHERE id IN (
    SELECT live.id FROM json_each(:verdict) AS verdict CROSS JOIN holdfast_live AS live ON live.id = verdict.value->>0
    WHERE live.token = verdict.value->>1 AND live.state = 'running')

-- name: write_attempts
INSERT INTO holdfast_attempt (job_id, token, number, worker, started_at, ended_at, reason, exit_code, error)
SELECT run.value->>0, run.value->>1, run.value->>2, run.value->>3, coalesce(:now - (run.value->>5), run.value->>4), :now,
    run.value->>6, run.value->>7, run.value->>8
FROM json_each(:run) AS run

-- name: give_back
-- Prefetched jobs that were never begun: back in their places, at no cost, leaving no trace.
UPDATE holdfast_live SET state = 'ready', worker = NULL, claimed_at = NULL, lapses_at = NULL
FROM json_each(:held) AS held
WHERE holdfast_live.id = held.value->>0 AND token = held.value->>1 AND state = 'running' AND started_at IS NULL
RETURNING holdfast_live.id

-- name: promote
-- Scheduled jobs whose time has come become ready.
UPDATE holdfast_live SET state = 'ready'
WHERE id IN (
    SELECT id FROM holdfast_live WHERE state = 'scheduled' AND due_at <= :now ORDER BY due_at, id LIMIT :limit)
RETURNING id

-- name: report
-- Progress and checkpoint of a running job. What is not told stays as it was.
INSERT INTO holdfast_progress AS known (job_id, done, total, message, checkpoint, at)
SELECT id, :done, :total, :message, :checkpoint, :now
FROM holdfast_live WHERE id = :id AND token = :token AND state = 'running'
ON CONFLICT (job_id) DO UPDATE SET done = coalesce(excluded.done, known.done),
    total = coalesce(excluded.total, known.total), message = coalesce(excluded.message, known.message),
    checkpoint = coalesce(excluded.checkpoint, known.checkpoint), at = excluded.at
RETURNING job_id
