-- Leases on PostgreSQL: claim, renew, mark, settle, take over.
-- Every write of a holder names id and token and asks for state 'running': an older token
-- changes no row. "id = ANY(ids)" beside a join with the same ids looks idle: it keeps the plan on
-- the primary key, where statistics taken at another moment would suggest to read the whole table.

-- name: claim
-- For each lane (a queue and a kind that the worker knows) the first ready jobs, then the best
-- of all. Paused and limited queues are left out; careful jobs go only to those who mark.
WITH lane AS (
    SELECT queues.name AS queue, kinds.name AS kind
    FROM unnest(:queues::text[]) AS queues (name) CROSS JOIN unnest(:kinds::text[]) AS kinds (name)
    WHERE NOT EXISTS (
        SELECT FROM holdfast.queue
        WHERE queue.name = queues.name
            AND (queue.paused OR queue.run_limit IS NOT NULL OR queue.worker_limit IS NOT NULL))
), taken AS (
    UPDATE holdfast.live SET state = 'running', token = token + 1, worker = :worker,
        claimed_at = (SELECT holdfast.now()), lapses_at = (SELECT holdfast.now()) + :term::interval,
        started_at = CASE WHEN :mark THEN (SELECT holdfast.now()) END,
        attempts = attempts + CASE WHEN :mark THEN 1 ELSE 0 END
    WHERE id = ANY(ARRAY(
        SELECT first.id
        FROM lane CROSS JOIN LATERAL (
            SELECT id, priority, due_at FROM holdfast.live
            WHERE state = 'ready' AND queue = lane.queue AND kind = lane.kind AND (:mark OR NOT careful)
            ORDER BY priority DESC, due_at, id LIMIT :limit::bigint
            FOR UPDATE SKIP LOCKED) AS first
        ORDER BY first.priority DESC, first.due_at, first.id LIMIT :limit::bigint))
    RETURNING id, token, kind, queue, attempts, suspect, priority, due_at
)
SELECT taken.id AS job_id, taken.token, taken.kind, taken.queue, job.payload::text,
    taken.attempts + CASE WHEN :mark THEN 0 ELSE 1 END AS attempt, :mark AS marked, taken.suspect,
    taken.priority, taken.due_at, CASE WHEN taken.token > 1 THEN (
        SELECT checkpoint::text FROM holdfast.progress WHERE job_id = taken.id) END AS checkpoint
FROM taken JOIN holdfast.job ON job.id = taken.id
ORDER BY taken.priority DESC, taken.due_at, taken.id

-- name: limited_queues
SELECT name FROM holdfast.queue
WHERE name = ANY(:queues::text[]) AND (run_limit IS NOT NULL OR worker_limit IS NOT NULL)

-- name: lock_queues
-- Claims of one limited queue come one after the other. The count must follow in a statement
-- of its own: in this one it would see the time before the wait for the lock.
SELECT name FROM holdfast.queue WHERE name = ANY(:queues::text[]) ORDER BY name FOR UPDATE

-- name: claim_limited
-- As many as there are free slots, under the queues' locks; always marked.
WITH free AS (
    SELECT queue.name, greatest(0, least(queue.run_limit - count(live.id),
        queue.worker_limit - count(live.id) FILTER (WHERE live.worker = :worker))) AS slots
    FROM holdfast.queue LEFT JOIN holdfast.live ON live.queue = queue.name AND live.lapses_at IS NOT NULL
    WHERE queue.name = ANY(:queues::text[]) AND NOT queue.paused
    GROUP BY queue.name
), ranked AS (
    SELECT first.*, free.slots,
        row_number() OVER (PARTITION BY free.name ORDER BY first.priority DESC, first.due_at, first.id) AS place
    FROM free CROSS JOIN unnest(:kinds::text[]) AS kinds (name) CROSS JOIN LATERAL (
        SELECT id, priority, due_at FROM holdfast.live
        WHERE state = 'ready' AND queue = free.name AND kind = kinds.name
        ORDER BY priority DESC, due_at, id LIMIT least(free.slots, :limit::bigint)
        FOR UPDATE SKIP LOCKED) AS first
), taken AS (
    UPDATE holdfast.live SET state = 'running', token = token + 1, worker = :worker,
        claimed_at = (SELECT holdfast.now()), lapses_at = (SELECT holdfast.now()) + :term::interval,
        started_at = (SELECT holdfast.now()), attempts = attempts + 1
    WHERE id = ANY(ARRAY(
        SELECT id FROM ranked WHERE place <= slots ORDER BY priority DESC, due_at, id LIMIT :limit::bigint))
    RETURNING id, token, kind, queue, attempts, suspect, priority, due_at
)
SELECT taken.id AS job_id, taken.token, taken.kind, taken.queue, job.payload::text, taken.attempts AS attempt,
    true AS marked, taken.suspect, taken.priority, taken.due_at,
    CASE WHEN taken.token > 1 THEN (
        SELECT checkpoint::text FROM holdfast.progress WHERE job_id = taken.id) END AS checkpoint
FROM taken JOIN holdfast.job ON job.id = taken.id
ORDER BY taken.priority DESC, taken.due_at, taken.id

-- name: renew
-- SKIP LOCKED: a long transaction of the user on one job must not cost the other leases.
-- A lease that was skipped is still the holder's, it was only not extended this time.
WITH held AS (
    SELECT * FROM unnest(:held_id::bigint[], :held_token::bigint[], :held_term::interval[]) AS held (id, token, term)
), mine AS (
    SELECT live.id, live.cancel_wanted FROM held JOIN holdfast.live ON live.id = held.id
    WHERE live.id = ANY(:held_id::bigint[]) AND live.token = held.token AND live.state = 'running'
), renewed AS (
    UPDATE holdfast.live SET lapses_at = (SELECT holdfast.now()) + held.term
    FROM held
    WHERE live.id = held.id AND live.token = held.token AND live.state = 'running' AND live.id = ANY(ARRAY(
        SELECT id FROM holdfast.live WHERE id = ANY(:held_id::bigint[]) ORDER BY id FOR UPDATE SKIP LOCKED))
    RETURNING live.id
)
SELECT mine.id AS job_id, renewed.id IS NOT NULL AS renewed, mine.cancel_wanted
FROM mine LEFT JOIN renewed ON renewed.id = mine.id

-- name: mark
-- The durable start mark: from here on the loss of the holder costs an attempt.
UPDATE holdfast.live SET attempts = attempts + CASE WHEN started_at IS NULL THEN 1 ELSE 0 END,
    started_at = coalesce(started_at, (SELECT holdfast.now()))
WHERE id = :id AND token = :token AND state = 'running'
RETURNING attempts

-- name: settle_done
-- The common end, in one statement: the live row goes, the ended row comes.
WITH gone AS (
    DELETE FROM holdfast.live
    USING unnest(:held_id::bigint[], :held_token::bigint[], :held_result::text[], :held_ran::interval[])
        AS held (id, token, result, ran)
    WHERE live.id = ANY(:held_id::bigint[]) AND live.id = held.id AND live.token = held.token
        AND live.state = 'running'
    RETURNING live.id, live.queue, live.kind, live.priority, live.due_at, live.attempts, live.crashes, live.token,
        live.worker, live.claimed_at, live.started_at, live.needed, held.result, held.ran
), kept AS (
    INSERT INTO holdfast.ended (id, state, queue, kind, priority, due_at, attempts, crashes, token, worker,
        started_at, ended_at, reason, result)
    SELECT id, 'done', queue, kind, priority, due_at, attempts + CASE WHEN started_at IS NULL THEN 1 ELSE 0 END,
        crashes, token, worker, coalesce(clock.now - ran, started_at, claimed_at), clock.now, 'done', result::json
    FROM gone, (SELECT holdfast.now() AS now) AS clock
)
SELECT id, needed FROM gone

-- name: settled_before
-- Ends that are recorded already, by this very token and outcome: a settle sent again is a success.
WITH held AS (
    SELECT * FROM unnest(:held_id::bigint[], :held_token::bigint[], :held_reason::text[]) AS held (id, token, reason)
)
SELECT held.id FROM held JOIN holdfast.ended ON ended.id = held.id
WHERE ended.token = held.token AND ended.reason = held.reason
UNION
SELECT held.id FROM held JOIN holdfast.attempt ON attempt.job_id = held.id
WHERE attempt.token = held.token AND attempt.reason = held.reason

-- name: lock_held
-- The row's own numbers, for judge(): read under a lock that lasts until the verdict is written.
SELECT live.id AS job_id, live.kind, live.queue, live.token, live.attempts, job.max_attempts, live.crashes,
    job.max_crashes, job.on_lost, job.retry::text, live.started_at IS NOT NULL AS marked, live.cancel_wanted,
    live.needed, live.worker, live.claimed_at, live.started_at
FROM holdfast.live JOIN holdfast.job ON job.id = live.id
JOIN unnest(:held_id::bigint[], :held_token::bigint[]) AS held (id, token) ON live.id = held.id
WHERE live.id = ANY(:held_id::bigint[]) AND live.token = held.token AND live.state = 'running'
ORDER BY live.id FOR UPDATE OF live

-- name: lock_lapsed
-- Leases that nobody renewed. SKIP LOCKED leaves out those that are being settled or renewed now.
SELECT live.id AS job_id, live.kind, live.queue, live.token, live.attempts, job.max_attempts, live.crashes,
    job.max_crashes, job.on_lost, job.retry::text, live.started_at IS NOT NULL AS marked, live.cancel_wanted,
    live.needed, live.worker, live.claimed_at, live.started_at
FROM holdfast.live JOIN holdfast.job ON job.id = live.id
WHERE live.lapses_at < (SELECT holdfast.now())
ORDER BY live.lapses_at, live.id LIMIT :limit::bigint
FOR UPDATE OF live SKIP LOCKED

-- name: put_back
-- A run that did not end its job: it is ready, scheduled or held again. *raised* is 1 when the
-- job is taken over, so that the old holder is shut out for good.
UPDATE holdfast.live SET state = verdict.state, attempts = verdict.attempts, crashes = verdict.crashes,
    token = live.token + verdict.raised, suspect = verdict.suspect, careful = verdict.careful, note = verdict.note,
    due_at = CASE WHEN verdict.delay > interval '0' THEN (SELECT holdfast.now()) + verdict.delay ELSE live.due_at END,
    worker = NULL, claimed_at = NULL, started_at = NULL, lapses_at = NULL
FROM unnest(:verdict_id::bigint[], :verdict_token::bigint[], :verdict_state::text[], :verdict_attempts::integer[],
    :verdict_crashes::integer[], :verdict_raised::integer[], :verdict_suspect::boolean[], :verdict_careful::boolean[],
    :verdict_note::text[], :verdict_delay::interval[])
    AS verdict (id, token, state, attempts, crashes, raised, suspect, careful, note, delay)
WHERE live.id = ANY(:verdict_id::bigint[]) AND live.id = verdict.id AND live.token = verdict.token
    AND live.state = 'running'

-- name: end_held
-- A run that ended its job otherwise than done.
WITH gone AS (
    DELETE FROM holdfast.live
    USING unnest(:verdict_id::bigint[], :verdict_token::bigint[], :verdict_state::text[], :verdict_attempts::integer[],
        :verdict_crashes::integer[], :verdict_raised::integer[], :verdict_reason::text[], :verdict_error::text[],
        :verdict_ran::interval[])
        AS verdict (id, token, state, attempts, crashes, raised, reason, error, ran)
    WHERE live.id = ANY(:verdict_id::bigint[]) AND live.id = verdict.id AND live.token = verdict.token
        AND live.state = 'running'
    RETURNING live.id, live.queue, live.kind, live.priority, live.due_at, live.worker, live.claimed_at,
        live.started_at, live.token + verdict.raised AS token, verdict.state, verdict.attempts, verdict.crashes,
        verdict.reason, verdict.error, verdict.ran
)
INSERT INTO holdfast.ended (id, state, queue, kind, priority, due_at, attempts, crashes, token, worker,
    started_at, ended_at, reason, error)
SELECT id, state, queue, kind, priority, due_at, attempts, crashes, token, worker,
    coalesce(clock.now - ran, started_at, claimed_at), clock.now, reason, error
FROM gone, (SELECT holdfast.now() AS now) AS clock

-- name: write_attempts
INSERT INTO holdfast.attempt (job_id, token, number, worker, started_at, ended_at, reason, exit_code, error)
SELECT run.job_id, run.token, run.number, run.worker, coalesce(clock.now - run.ran, run.started_at), clock.now,
    run.reason, run.exit_code, run.error
FROM unnest(:run_job_id::bigint[], :run_token::bigint[], :run_number::integer[], :run_worker::text[],
    :run_started_at::timestamptz[], :run_ran::interval[], :run_reason::text[], :run_exit_code::integer[],
    :run_error::text[])
    AS run (job_id, token, number, worker, started_at, ran, reason, exit_code, error),
    (SELECT holdfast.now() AS now) AS clock

-- name: give_back
-- Prefetched jobs that were never begun: back in their places, at no cost, leaving no trace.
UPDATE holdfast.live SET state = 'ready', worker = NULL, claimed_at = NULL, lapses_at = NULL
FROM unnest(:held_id::bigint[], :held_token::bigint[]) AS held (id, token)
WHERE live.id = ANY(:held_id::bigint[]) AND live.id = held.id AND live.token = held.token
    AND live.state = 'running' AND live.started_at IS NULL
RETURNING live.id

-- name: promote
-- Scheduled jobs whose time has come become ready.
UPDATE holdfast.live SET state = 'ready'
WHERE id = ANY(ARRAY(
    SELECT id FROM holdfast.live WHERE state = 'scheduled' AND due_at <= (SELECT holdfast.now())
    ORDER BY due_at, id LIMIT :limit::bigint FOR UPDATE SKIP LOCKED))
RETURNING id

-- name: report
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
