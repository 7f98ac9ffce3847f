-- What the dashboard shows in one look, on PostgreSQL. Counts stop at a cap, every list at a limit: no page costs more
-- because there are more jobs.

-- name: list_ready_lanes
-- Ready jobs by queue and kind: one step through the index for each, and one for each priority in it.
WITH RECURSIVE lane (queue, kind, place) AS (
    (SELECT queue, kind, 1 FROM holdfast.live WHERE state = 'ready' ORDER BY queue, kind LIMIT 1)
    UNION ALL
    SELECT following.queue, following.kind, lane.place + 1 FROM lane CROSS JOIN LATERAL (
        SELECT queue, kind FROM holdfast.live
        WHERE state = 'ready' AND (queue, kind) > (lane.queue, lane.kind) ORDER BY queue, kind LIMIT 1) AS following
    WHERE lane.place < :lanes::bigint
), level (queue, kind, priority, place) AS (
    SELECT queue, kind, (
        SELECT max(priority) FROM holdfast.live
        WHERE state = 'ready' AND live.queue = lane.queue AND live.kind = lane.kind), 1
    FROM lane
    UNION ALL
    SELECT queue, kind, (
        SELECT max(live.priority) FROM holdfast.live WHERE state = 'ready' AND live.queue = level.queue
            AND live.kind = level.kind AND live.priority < level.priority), place + 1
    FROM level WHERE priority IS NOT NULL AND place < 100
)
SELECT queue, kind, (SELECT count(*) FROM (
        SELECT FROM holdfast.live
        WHERE state = 'ready' AND live.queue = level.queue AND live.kind = level.kind LIMIT :cap::bigint) AS found) AS ready,
    (SELECT holdfast.now()) - min((
        SELECT min(due_at) FROM holdfast.live WHERE state = 'ready' AND live.queue = level.queue
            AND live.kind = level.kind AND live.priority = level.priority)) AS waited
FROM level WHERE priority IS NOT NULL GROUP BY queue, kind

-- name: list_active_queues
-- The queues that have settings, or in which something runs.
WITH RECURSIVE busy (name, place) AS (
    (SELECT queue, 1 FROM holdfast.live WHERE lease_expires_at IS NOT NULL ORDER BY queue, lease_expires_at LIMIT 1)
    UNION ALL
    SELECT following.queue, busy.place + 1 FROM busy CROSS JOIN LATERAL (
        SELECT queue FROM holdfast.live WHERE lease_expires_at IS NOT NULL AND queue > busy.name
        ORDER BY queue, lease_expires_at LIMIT 1) AS following
    WHERE busy.place < :lanes::bigint
)
SELECT names.name, queue.run_limit AS "limit", queue.worker_limit, coalesce(queue.paused, false) AS paused, queue.note,
    (SELECT count(*) FROM (
        SELECT FROM holdfast.live WHERE live.queue = names.name AND lease_expires_at IS NOT NULL LIMIT :cap::bigint) AS found) AS running,
    (SELECT count(*) FROM (
        SELECT FROM holdfast.live WHERE live.queue = names.name AND lease_expires_at < (SELECT holdfast.now())
        LIMIT :cap::bigint) AS found) AS expired
FROM (SELECT name FROM holdfast.queue UNION SELECT name FROM busy) AS names
LEFT JOIN holdfast.queue ON queue.name = names.name

-- name: count_jobs_by_state
-- How many jobs stand where, and how many have ended lately: by queue, in slots of time counted back from now.
SELECT 'held' AS state, '' AS queue, -1 AS slot, count(*) AS count
FROM (SELECT FROM holdfast.live WHERE state = 'held' LIMIT :cap::bigint) AS found
UNION ALL SELECT 'waiting', '', -1, count(*)
FROM (SELECT FROM holdfast.live WHERE state = 'waiting' LIMIT :cap::bigint) AS found
UNION ALL SELECT 'scheduled', '', -1, count(*)
FROM (SELECT FROM holdfast.live WHERE state = 'scheduled' LIMIT :cap::bigint) AS found
UNION ALL SELECT 'ready', '', -1, count(*)
FROM (SELECT FROM holdfast.live WHERE state = 'ready' LIMIT :cap::bigint) AS found
UNION ALL SELECT 'running', '', -1, count(*)
FROM (SELECT FROM holdfast.live WHERE lease_expires_at IS NOT NULL ORDER BY queue, lease_expires_at LIMIT :cap::bigint) AS found
UNION ALL SELECT 'done', '', -1, count(*)
FROM (SELECT FROM holdfast.finished WHERE state = 'done' ORDER BY finished_at DESC LIMIT :cap::bigint) AS found
UNION ALL SELECT 'dead', '', -1, count(*)
FROM (SELECT FROM holdfast.finished WHERE state = 'dead' ORDER BY finished_at DESC LIMIT :cap::bigint) AS found
UNION ALL SELECT 'cancelled', '', -1, count(*)
FROM (SELECT FROM holdfast.finished WHERE state = 'cancelled' ORDER BY finished_at DESC LIMIT :cap::bigint) AS found
UNION ALL SELECT state, queue, slot, count(*) FROM (
    SELECT state, queue, floor(extract(epoch FROM ((SELECT holdfast.now()) - finished_at)) / extract(epoch FROM :slot::interval))::integer AS slot
    FROM (
        (SELECT state, queue, finished_at FROM holdfast.finished
        WHERE state = 'done' AND finished_at > (SELECT holdfast.now()) - :span::interval ORDER BY finished_at DESC LIMIT :most::bigint)
        UNION ALL
        (SELECT state, queue, finished_at FROM holdfast.finished
        WHERE state = 'dead' AND finished_at > (SELECT holdfast.now()) - :span::interval ORDER BY finished_at DESC LIMIT :most::bigint)
        UNION ALL
        (SELECT state, queue, finished_at FROM holdfast.finished
        WHERE state = 'cancelled' AND finished_at > (SELECT holdfast.now()) - :span::interval ORDER BY finished_at DESC LIMIT :most::bigint)
    ) AS lately) AS placed
GROUP BY state, queue, slot

-- name: list_problems
-- What wants a look: each found by an index, the newest of each.
(SELECT 'expired' AS what, id::text AS name, kind AS detail, lease_expires_at AS at, 1::bigint AS count FROM holdfast.live
WHERE lease_expires_at < (SELECT holdfast.now()) ORDER BY queue, lease_expires_at LIMIT :limit::bigint)
UNION ALL
(SELECT 'dead', id::text, kind || ', ' || coalesce(reason, ''), finished_at, 1 FROM holdfast.finished
WHERE state = 'dead' ORDER BY finished.id DESC LIMIT :limit::bigint)
UNION ALL
(SELECT 'failing', name, left(error, 300), next_at, failures FROM holdfast.schedule WHERE failures > 0
ORDER BY next_at LIMIT :limit::bigint)
UNION ALL
(SELECT 'late', name, NULL, next_at, 1 FROM holdfast.schedule WHERE check_at < (SELECT holdfast.now()) - :late::interval AND failures = 0
ORDER BY check_at, name LIMIT :limit::bigint)
UNION ALL
(SELECT 'paused_schedule', name, note, changed_at, 1 FROM holdfast.schedule WHERE paused ORDER BY name LIMIT :limit::bigint)
UNION ALL
(SELECT 'missed', schedule, reason, decided_at, count FROM holdfast.skipped_plan
WHERE decided_at > (SELECT holdfast.now()) - :span::interval AND reason IN ('late', 'window', 'catch_up')
ORDER BY decided_at DESC LIMIT :limit::bigint)
UNION ALL
(SELECT state || '_batch', id::text, coalesce(aborted_by, kind), coalesce(finished_at, started_at), run_number FROM holdfast.batch
WHERE state IN ('ready', 'running', 'paused', 'stopped') AND state IN ('paused', 'stopped')
ORDER BY batch.id DESC LIMIT :limit::bigint)

-- name: list_dead_job_errors
-- How the newest dead jobs failed. The payload comes along to find its secrets in the error; where it is large, only
-- the reason is told.
SELECT id, kind, queue, at, CASE WHEN length(payload) <= 8192 THEN error ELSE reason END AS error,
    CASE WHEN length(payload) <= 8192 THEN payload ELSE '{}' END AS payload
FROM (
    SELECT id, kind, queue, finished_at AS at, left(coalesce(error, reason, ''), 600) AS error, coalesce(reason, '') AS reason,
        coalesce((SELECT job.payload::text FROM holdfast.job WHERE job.id = finished.id), '{}') AS payload
    FROM holdfast.finished WHERE state = 'dead' AND state <> 'done' AND finished.id < :before
    ORDER BY finished.id DESC LIMIT :limit::bigint) AS dead

-- name: list_dependency_edges
-- What a job dependencies and what dependencies it, step by step; each edge with the job at its far end.
WITH RECURSIVE up (job_id, dependency_id, depth) AS (
    SELECT job_id, dependency_id, 1 FROM holdfast.dependency WHERE job_id = :id
    UNION
    SELECT dependency.job_id, dependency.dependency_id, up.depth + 1 FROM up JOIN holdfast.dependency ON dependency.job_id = up.dependency_id
    WHERE up.depth < :depth::bigint
), down (job_id, dependency_id, depth) AS (
    SELECT job_id, dependency_id, 1 FROM holdfast.dependency WHERE dependency_id = :id
    UNION
    SELECT dependency.job_id, dependency.dependency_id, down.depth + 1 FROM down JOIN holdfast.dependency ON dependency.dependency_id = down.job_id
    WHERE down.depth < :depth::bigint
)
SELECT way, job_id, dependency_id, depth,
    coalesce((SELECT state FROM holdfast.live WHERE live.id = far), (SELECT state FROM holdfast.finished WHERE finished.id = far)) AS state,
    (SELECT kind FROM holdfast.job WHERE job.id = far) AS kind,
    (SELECT label FROM holdfast.job WHERE job.id = far) AS label
FROM (
    (SELECT 'dependencies' AS way, job_id, dependency_id, depth, dependency_id AS far FROM up LIMIT :limit::bigint)
    UNION ALL
    (SELECT 'dependents', job_id, dependency_id, depth, job_id FROM down LIMIT :limit::bigint)) AS edges

-- name: list_running_jobs
-- What runs now, for the workers that run it.
SELECT live.id, live.kind, live.queue, live.worker, live.claimed_at, live.started_at, live.lease_expires_at, told.done AS progress_done,
    told.total AS progress_total
FROM (
    SELECT id, kind, queue, worker, claimed_at, started_at, lease_expires_at FROM holdfast.live
    WHERE lease_expires_at IS NOT NULL ORDER BY queue, lease_expires_at LIMIT :limit::bigint) AS live
LEFT JOIN LATERAL (SELECT done, total FROM holdfast.progress WHERE job_id = live.id LIMIT 1) AS told ON true

-- name: list_job_history
-- Attempts and events of a job, in one answer.
SELECT 'attempt' AS what, attempt.number, attempt.token, attempt.worker, worker.host, worker.pid, worker.version,
    attempt.started_at, attempt.finished_at AS at, attempt.reason AS name, attempt.exit_code, attempt.error, NULL AS actor,
    NULL AS detail
FROM holdfast.attempt LEFT JOIN holdfast.worker ON worker.id = attempt.worker
WHERE attempt.job_id = :id
UNION ALL
SELECT 'worker', 0, 0, id, host, pid, version, started_at, seen_at, NULL, NULL, NULL, NULL, NULL
FROM holdfast.worker WHERE id = :worker
UNION ALL
SELECT 'event', 0, id, NULL, NULL, NULL, NULL, NULL, at, name, NULL, NULL, actor, detail::text
FROM (SELECT id, at, name, actor, detail FROM holdfast.event WHERE job_id = :id ORDER BY id DESC LIMIT :limit::bigint) AS latest

-- name: explain_job
-- All that says why a job does not run, in one row.
SELECT (SELECT holdfast.now()) AS now, queue.name, queue.run_limit AS "limit", queue.worker_limit,
    coalesce(queue.paused, false) AS paused, queue.note,
    (SELECT count(*) FROM holdfast.live WHERE live.queue = :queue AND live.lease_expires_at IS NOT NULL) AS running,
    (SELECT count(*) FROM holdfast.worker WHERE stopped_at IS NULL
        AND seen_at > (SELECT holdfast.now()) - :silence::interval AND :queue = ANY(queues) AND :kind = ANY(kinds)) AS workers,
    (SELECT count(*) FROM (
        (SELECT 1 FROM holdfast.live
        WHERE state = 'ready' AND live.queue = :queue AND kind = :kind AND priority > :priority
        ORDER BY priority DESC, due_at, id LIMIT 1000)
        UNION ALL
        (SELECT 1 FROM holdfast.live
        WHERE state = 'ready' AND live.queue = :queue AND kind = :kind AND priority = :priority
            AND (due_at, id) < (:due_at::timestamptz, :id::bigint)
        ORDER BY due_at, id LIMIT 1000)
        LIMIT 1000) AS capped) AS ahead
FROM (SELECT 1) AS one LEFT JOIN holdfast.queue ON queue.name = :queue

-- name: read_change_tokens
-- A word for each part of the store that is another one when something in it has changed.
SELECT concat_ws(' ', (SELECT max(id) FROM holdfast.job), pg_stat_get_tuples_inserted('holdfast.job'::regclass),
        (SELECT max(id) FROM holdfast.event),
        (SELECT concat_ws('/', count(*), sum(token), sum(told), max(claimed_at)) FROM (
            SELECT token, claimed_at, (SELECT done FROM holdfast.progress WHERE job_id = live.id) AS told
            FROM holdfast.live WHERE lease_expires_at IS NOT NULL ORDER BY queue, lease_expires_at LIMIT 1000) AS running),
        (SELECT finished_at FROM holdfast.finished WHERE state = 'done' ORDER BY finished_at DESC LIMIT 1),
        (SELECT finished_at FROM holdfast.finished WHERE state = 'dead' ORDER BY finished_at DESC LIMIT 1),
        (SELECT finished_at FROM holdfast.finished WHERE state = 'cancelled' ORDER BY finished_at DESC LIMIT 1)) AS jobs,
    (SELECT concat_ws(' ', max(id), string_agg(concat_ws('/', state, requested, counted), ' ')) FROM (
        SELECT id, state, requested, (SELECT sum(count) FROM holdfast.unit_count WHERE batch_id = batch.id) AS counted
        FROM holdfast.batch WHERE state IN ('ready', 'running', 'paused', 'stopped') ORDER BY id DESC LIMIT 50) AS open) AS batches,
    concat_ws(' ', (SELECT check_at FROM holdfast.schedule WHERE check_at IS NOT NULL ORDER BY check_at LIMIT 1),
        (SELECT decided_at FROM holdfast.skipped_plan ORDER BY decided_at DESC LIMIT 1)) AS schedules,
    (SELECT concat_ws(' ', count(*), max(seen_at), string_agg(requested, ',')) FROM holdfast.worker WHERE stopped_at IS NULL) AS workers,
    (SELECT md5(string_agg(concat_ws('/', name, run_limit, worker_limit, paused), ' ')) FROM holdfast.queue) AS queues,
    (SELECT max(id) FROM holdfast.audit_entry)::text AS acts
