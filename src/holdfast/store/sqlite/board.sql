-- What the dashboard shows in one look, on SQLite. Counts stop at a cap, every list at a limit: no page costs more
-- because there are more jobs.

-- name: list_ready_lanes
-- Ready jobs by queue and kind: one step through the index for each, and one for each priority in it.
WITH RECURSIVE lane (queue, kind, place) AS (
    SELECT queue, kind, 1 FROM holdfast_live WHERE id = (
        SELECT id FROM holdfast_live WHERE state = 'ready' AND queue >= ''
        ORDER BY queue, kind, priority DESC, due_at, id LIMIT 1)
    UNION ALL
    -- Not by both columns at once: SQLite would walk the rest of the queue.
    SELECT live.queue, live.kind, lane.place + 1 FROM lane CROSS JOIN holdfast_live AS live ON live.id = coalesce((
        SELECT id FROM holdfast_live WHERE state = 'ready' AND queue = lane.queue AND kind > lane.kind
        ORDER BY queue, kind, priority DESC, due_at, id LIMIT 1), (
        SELECT id FROM holdfast_live WHERE state = 'ready' AND queue > lane.queue
        ORDER BY queue, kind, priority DESC, due_at, id LIMIT 1))
    WHERE lane.place < :lanes
), level (queue, kind, priority, place) AS (
    SELECT queue, kind, (
        SELECT max(priority) FROM holdfast_live AS live
        WHERE state = 'ready' AND live.queue = lane.queue AND live.kind = lane.kind), 1
    FROM lane
    UNION ALL
    SELECT queue, kind, (
        SELECT max(live.priority) FROM holdfast_live AS live WHERE state = 'ready' AND live.queue = level.queue
            AND live.kind = level.kind AND live.priority < level.priority), place + 1
    FROM level WHERE priority IS NOT NULL AND place < 100
)
SELECT queue, kind, (SELECT count(*) FROM (
        SELECT 1 FROM holdfast_live AS live
        WHERE state = 'ready' AND live.queue = level.queue AND live.kind = level.kind LIMIT :cap)) AS ready,
    :now - min((
        SELECT min(due_at) FROM holdfast_live AS live WHERE state = 'ready' AND live.queue = level.queue
            AND live.kind = level.kind AND live.priority = level.priority)) AS waited
FROM level WHERE priority IS NOT NULL GROUP BY queue, kind

-- name: list_active_queues
-- The queues that have settings, or in which something runs.
WITH RECURSIVE busy (name, place) AS (
    SELECT min(queue), 1 FROM holdfast_live WHERE lease_expires_at IS NOT NULL
    UNION ALL
    SELECT (SELECT min(queue) FROM holdfast_live WHERE lease_expires_at IS NOT NULL AND queue > busy.name), busy.place + 1
    FROM busy WHERE busy.name IS NOT NULL AND busy.place < :lanes
)
SELECT names.name, queue.run_limit AS "limit", queue.worker_limit, coalesce(queue.paused, 0) AS paused, queue.note,
    (SELECT count(*) FROM (
        SELECT 1 FROM holdfast_live AS live WHERE live.queue = names.name AND lease_expires_at IS NOT NULL LIMIT :cap)) AS running,
    (SELECT count(*) FROM (
        SELECT 1 FROM holdfast_live AS live WHERE live.queue = names.name AND lease_expires_at < :now LIMIT :cap)) AS expired
FROM (SELECT name FROM holdfast_queue UNION SELECT name FROM busy WHERE name IS NOT NULL) AS names
LEFT JOIN holdfast_queue AS queue ON queue.name = names.name

-- name: count_jobs_by_state
-- How many jobs stand where, and how many have ended lately: by queue, in slots of time counted back from now.
SELECT 'held' AS state, '' AS queue, -1 AS slot, count(*) AS count
FROM (SELECT 1 FROM holdfast_live WHERE state = 'held' AND id > 0 LIMIT :cap)
UNION ALL SELECT 'waiting', '', -1, count(*) FROM (SELECT 1 FROM holdfast_live WHERE state = 'waiting' AND id > 0 LIMIT :cap)
UNION ALL SELECT 'scheduled', '', -1, count(*) FROM (SELECT 1 FROM holdfast_live WHERE state = 'scheduled' AND id > 0 LIMIT :cap)
UNION ALL SELECT 'ready', '', -1, count(*) FROM (SELECT 1 FROM holdfast_live WHERE state = 'ready' AND queue >= '' LIMIT :cap)
UNION ALL SELECT 'running', '', -1, count(*) FROM (SELECT 1 FROM holdfast_live WHERE lease_expires_at IS NOT NULL LIMIT :cap)
UNION ALL SELECT 'done', '', -1, count(*) FROM (SELECT 1 FROM holdfast_finished WHERE state = 'done' LIMIT :cap)
UNION ALL SELECT 'dead', '', -1, count(*)
FROM (SELECT 1 FROM holdfast_finished WHERE state = 'dead' AND state <> 'done' LIMIT :cap)
UNION ALL SELECT 'cancelled', '', -1, count(*)
FROM (SELECT 1 FROM holdfast_finished WHERE state = 'cancelled' AND state <> 'done' LIMIT :cap)
UNION ALL SELECT state, queue, slot, count(*) FROM (
    SELECT state, queue, (:now - finished_at) / :slot AS slot FROM (
        SELECT * FROM (SELECT state, queue, finished_at FROM holdfast_finished
        WHERE state = 'done' AND finished_at > :now - :span ORDER BY finished_at DESC LIMIT :most)
        UNION ALL
        SELECT * FROM (SELECT state, queue, finished_at FROM holdfast_finished
        WHERE state = 'dead' AND finished_at > :now - :span ORDER BY finished_at DESC LIMIT :most)
        UNION ALL
        SELECT * FROM (SELECT state, queue, finished_at FROM holdfast_finished
        WHERE state = 'cancelled' AND finished_at > :now - :span ORDER BY finished_at DESC LIMIT :most)))
GROUP BY state, queue, slot

-- name: list_problems
-- What wants a look: each found by an index, the newest of each.
SELECT * FROM (SELECT 'expired' AS what, CAST(id AS TEXT) AS name, kind AS detail, lease_expires_at AS at, 1 AS count
FROM holdfast_live WHERE lease_expires_at IS NOT NULL AND lease_expires_at < :now LIMIT :limit)
UNION ALL
SELECT * FROM (SELECT 'dead', CAST(id AS TEXT), kind || ', ' || coalesce(reason, ''), finished_at, 1 FROM holdfast_finished
WHERE state = 'dead' AND state <> 'done' ORDER BY holdfast_finished.id DESC LIMIT :limit)
UNION ALL
SELECT * FROM (SELECT 'failing', name, substr(error, 1, 300), next_at, failures FROM holdfast_schedule WHERE failures > 0
ORDER BY next_at LIMIT :limit)
UNION ALL
SELECT * FROM (SELECT 'late', name, NULL, next_at, 1 FROM holdfast_schedule
WHERE check_at IS NOT NULL AND check_at < :now - :late AND failures = 0 ORDER BY check_at, name LIMIT :limit)
UNION ALL
SELECT * FROM (SELECT 'paused_schedule', name, note, changed_at, 1 FROM holdfast_schedule WHERE paused
ORDER BY name LIMIT :limit)
UNION ALL
SELECT * FROM (SELECT 'missed', schedule, reason, decided_at, count FROM holdfast_skipped_plan
WHERE decided_at > :now - :span AND reason IN ('late', 'window', 'catch_up') ORDER BY decided_at DESC LIMIT :limit)
UNION ALL
SELECT * FROM (SELECT state || '_batch', CAST(id AS TEXT), coalesce(aborted_by, kind), coalesce(finished_at, started_at), run_number
FROM holdfast_batch WHERE state IN ('ready', 'running', 'paused', 'stopped') AND state IN ('paused', 'stopped')
ORDER BY holdfast_batch.id DESC LIMIT :limit)

-- name: list_dead_job_errors
-- How the newest dead jobs failed. The payload comes along to find its secrets in the error; where it is large, only
-- the reason is told.
SELECT id, kind, queue, at, CASE WHEN length(payload) <= 8192 THEN error ELSE reason END AS error,
    CASE WHEN length(payload) <= 8192 THEN payload ELSE '{}' END AS payload
FROM (
    SELECT id, kind, queue, finished_at AS at, substr(coalesce(error, reason, ''), 1, 600) AS error,
        coalesce(reason, '') AS reason,
        coalesce((SELECT job.payload FROM holdfast_job AS job WHERE job.id = finished.id), '{}') AS payload
    FROM holdfast_finished AS finished WHERE state = 'dead' AND state <> 'done' AND finished.id < :before
    ORDER BY finished.id DESC LIMIT :limit) AS dead

-- name: list_dependency_edges
-- What a job dependencies and what dependencies it, step by step; each edge with the job at its far end.
WITH RECURSIVE up (job_id, dependency_id, depth) AS (
    SELECT job_id, dependency_id, 1 FROM holdfast_dependency WHERE job_id = :id
    UNION
    SELECT dependency.job_id, dependency.dependency_id, up.depth + 1 FROM up JOIN holdfast_dependency AS dependency ON dependency.job_id = up.dependency_id
    WHERE up.depth < :depth
    LIMIT :limit
), down (job_id, dependency_id, depth) AS (
    SELECT job_id, dependency_id, 1 FROM holdfast_dependency WHERE dependency_id = :id
    UNION
    SELECT dependency.job_id, dependency.dependency_id, down.depth + 1 FROM down JOIN holdfast_dependency AS dependency ON dependency.dependency_id = down.job_id
    WHERE down.depth < :depth
    LIMIT :limit
)
SELECT way, job_id, dependency_id, depth,
    coalesce((SELECT state FROM holdfast_live AS live WHERE live.id = far),
        (SELECT state FROM holdfast_finished AS finished WHERE finished.id = far)) AS state,
    (SELECT kind FROM holdfast_job AS job WHERE job.id = far) AS kind,
    (SELECT label FROM holdfast_job AS job WHERE job.id = far) AS label
FROM (
    SELECT 'dependencies' AS way, job_id, dependency_id, depth, dependency_id AS far FROM up
    UNION ALL
    SELECT 'dependents', job_id, dependency_id, depth, job_id FROM down) AS edges

-- name: list_running_jobs
-- What runs now, for the workers that run it.
SELECT live.id, live.kind, live.queue, live.worker, live.claimed_at, live.started_at, live.lease_expires_at, told.done AS progress_done,
    told.total AS progress_total
FROM holdfast_live AS live LEFT JOIN holdfast_progress AS told ON told.job_id = live.id
WHERE live.lease_expires_at IS NOT NULL ORDER BY live.queue, live.lease_expires_at LIMIT :limit

-- name: list_job_history
-- Attempts and events of a job, in one answer.
SELECT 'attempt' AS what, attempt.number, attempt.token, attempt.worker, worker.host, worker.pid, worker.version,
    attempt.started_at, attempt.finished_at AS at, attempt.reason AS name, attempt.exit_code, attempt.error, NULL AS actor,
    NULL AS detail
FROM holdfast_attempt AS attempt LEFT JOIN holdfast_worker AS worker ON worker.id = attempt.worker
WHERE attempt.job_id = :id
UNION ALL
SELECT 'worker', 0, 0, id, host, pid, version, started_at, seen_at, NULL, NULL, NULL, NULL, NULL
FROM holdfast_worker WHERE id = :worker
UNION ALL
SELECT 'event', 0, id, NULL, NULL, NULL, NULL, NULL, at, name, NULL, NULL, actor, detail
FROM (SELECT id, at, name, actor, detail FROM holdfast_event WHERE job_id = :id ORDER BY id DESC LIMIT :limit) AS latest

-- name: explain_job
-- All that says why a job does not run, in one row.
SELECT :now AS now, queue.name, queue.run_limit AS "limit", queue.worker_limit, coalesce(queue.paused, 0) AS paused, queue.note,
    (SELECT count(*) FROM holdfast_live AS live WHERE live.queue = :queue AND live.lease_expires_at IS NOT NULL) AS running,
    (SELECT count(*) FROM holdfast_worker
        WHERE stopped_at IS NULL AND seen_at > :now - :silence
            AND :queue IN (SELECT value FROM json_each(queues)) AND :kind IN (SELECT value FROM json_each(kinds))) AS workers,
    (SELECT count(*) FROM (
        SELECT * FROM (SELECT 1 FROM holdfast_live AS live
        WHERE state = 'ready' AND live.queue = :queue AND kind = :kind AND priority > :priority
        ORDER BY priority DESC, due_at, id LIMIT 1000)
        UNION ALL
        SELECT * FROM (SELECT 1 FROM holdfast_live AS live
        WHERE state = 'ready' AND live.queue = :queue AND kind = :kind AND priority = :priority
            AND (due_at, id) < (:due_at, :id)
        ORDER BY due_at, id LIMIT 1000)
        LIMIT 1000)) AS ahead
FROM (SELECT 1) AS one LEFT JOIN holdfast_queue AS queue ON queue.name = :queue

-- name: read_change_tokens
-- A word for each part of the store that is another one when something in it has changed.
SELECT (SELECT max(id) FROM holdfast_job) || ' ' || coalesce((SELECT max(id) FROM holdfast_event), '') || ' '
        || (SELECT count(*) || '/' || coalesce(sum(token), '') || '/' || coalesce(sum(told), '') || '/' || coalesce(max(claimed_at), '')
            FROM (SELECT token, claimed_at, (SELECT done FROM holdfast_progress WHERE job_id = live.id) AS told
            FROM holdfast_live AS live WHERE lease_expires_at IS NOT NULL LIMIT 1000)) || ' '
        || coalesce((SELECT max(finished_at) FROM holdfast_finished WHERE state = 'done'), '') || ' '
        || coalesce((SELECT max(finished_at) FROM holdfast_finished WHERE state = 'dead'), '') || ' '
        || coalesce((SELECT max(finished_at) FROM holdfast_finished WHERE state = 'cancelled'), '') AS jobs,
    (SELECT max(id) || ' ' || group_concat(state || '/' || coalesce(requested, '') || '/' || coalesce(counted, ''), ' ') FROM (
        SELECT id, state, requested, (SELECT sum(count) FROM holdfast_unit_count WHERE batch_id = batch.id) AS counted
        FROM holdfast_batch AS batch WHERE state IN ('ready', 'running', 'paused', 'stopped') ORDER BY id DESC LIMIT 50)) AS batches,
    coalesce((SELECT check_at FROM holdfast_schedule WHERE check_at IS NOT NULL ORDER BY check_at LIMIT 1), '') || ' '
        || coalesce((SELECT max(decided_at) FROM holdfast_skipped_plan), '') AS schedules,
    (SELECT count(*) || ' ' || coalesce(max(seen_at), '') || ' ' || coalesce(group_concat(requested), '')
        FROM holdfast_worker WHERE stopped_at IS NULL) AS workers,
    (SELECT group_concat(name || '/' || coalesce(run_limit, '') || '/' || coalesce(worker_limit, '') || '/' || paused, ' ')
        FROM holdfast_queue) AS queues,
    (SELECT CAST(max(id) AS TEXT) FROM holdfast_audit_entry) AS acts
