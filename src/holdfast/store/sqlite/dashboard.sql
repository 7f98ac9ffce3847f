-- Dashboard: counts stop at a cap and lists at a limit, so that the cost of a page does not grow with the jobs.

-- name: list_ready_lanes
-- Count ready jobs per lane: one index step per lane and per priority.
WITH RECURSIVE lane (queue, kind, step) AS (
    SELECT queue, kind, 1 FROM holdfast_live WHERE id = (
        SELECT id FROM holdfast_live WHERE state = 'ready' AND queue >= ''
        ORDER BY queue, kind, priority DESC, due_at, id LIMIT 1)
    UNION ALL
    SELECT live.queue, live.kind, lane.step + 1 FROM lane CROSS JOIN holdfast_live AS live ON live.id = coalesce((
        SELECT id FROM holdfast_live WHERE state = 'ready' AND queue = lane.queue AND kind > lane.kind
        ORDER BY queue, kind, priority DESC, due_at, id LIMIT 1), (
        SELECT id FROM holdfast_live WHERE state = 'ready' AND queue > lane.queue
        ORDER BY queue, kind, priority DESC, due_at, id LIMIT 1))
    WHERE lane.step < :lanes
), level (queue, kind, priority, step) AS (
    SELECT queue, kind, (
        SELECT max(priority) FROM holdfast_live AS live
        WHERE state = 'ready' AND live.queue = lane.queue AND live.kind = lane.kind), 1
    FROM lane
    UNION ALL
    SELECT queue, kind, (
        SELECT max(live.priority) FROM holdfast_live AS live WHERE state = 'ready' AND live.queue = level.queue
            AND live.kind = level.kind AND live.priority < level.priority), step + 1
    FROM level WHERE priority IS NOT NULL AND step < 100
)
SELECT queue, kind, (SELECT count(*) FROM (
        SELECT 1 FROM holdfast_live AS live
        WHERE state = 'ready' AND live.queue = level.queue AND live.kind = level.kind LIMIT :cap)) AS ready,
    :now - min((
        SELECT min(due_at) FROM holdfast_live AS live WHERE state = 'ready' AND live.queue = level.queue
            AND live.kind = level.kind AND live.priority = level.priority)) AS waited
FROM level WHERE priority IS NOT NULL GROUP BY queue, kind

-- name: list_active_queues
-- List queues that have settings or running jobs.
WITH RECURSIVE busy (name, step) AS (
    SELECT min(queue), 1 FROM holdfast_live WHERE lease_expires_at IS NOT NULL
    UNION ALL
    SELECT (SELECT min(queue) FROM holdfast_live WHERE lease_expires_at IS NOT NULL AND queue > busy.name), busy.step + 1
    FROM busy WHERE busy.name IS NOT NULL AND busy.step < :lanes
)
SELECT names.name, queue.run_limit AS "limit", queue.worker_limit, coalesce(queue.paused, 0) AS paused, queue.note,
    (SELECT count(*) FROM (
        SELECT 1 FROM holdfast_live AS live WHERE live.queue = names.name AND lease_expires_at IS NOT NULL LIMIT :cap)) AS running,
    (SELECT count(*) FROM (
        SELECT 1 FROM holdfast_live AS live WHERE live.queue = names.name AND lease_expires_at < :now LIMIT :cap)) AS expired
FROM (SELECT name FROM holdfast_queue UNION SELECT name FROM busy WHERE name IS NOT NULL) AS names
LEFT JOIN holdfast_queue AS queue ON queue.name = names.name

-- name: count_jobs_by_state
-- Count jobs by state, and the recently finished ones by queue and time slot, counted back from now.
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
-- List the newest problems of each sort, each found by an index.
SELECT * FROM (SELECT 'expired' AS category, CAST(id AS TEXT) AS name, kind AS detail, lease_expires_at AS at, 1 AS count
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

-- name: list_running_jobs
-- List running jobs with their progress.
SELECT live.id, live.kind, live.queue, live.worker, live.claimed_at, live.started_at, live.lease_expires_at, progress.done AS progress_done,
    progress.total AS progress_total
FROM holdfast_live AS live LEFT JOIN holdfast_progress AS progress ON progress.job_id = live.id
WHERE live.lease_expires_at IS NOT NULL ORDER BY live.queue, live.lease_expires_at LIMIT :limit

-- name: read_change_tokens
-- Read one token per area of the store. A token changes when something in its area changes.
SELECT (SELECT max(id) FROM holdfast_job) || ' ' || coalesce((SELECT max(id) FROM holdfast_event), '') || ' '
        || (SELECT count(*) || '/' || coalesce(sum(token), '') || '/' || coalesce(sum(progress), '') || '/' || coalesce(max(claimed_at), '')
            FROM (SELECT token, claimed_at, (SELECT done FROM holdfast_progress WHERE job_id = live.id) AS progress
            FROM holdfast_live AS live WHERE lease_expires_at IS NOT NULL LIMIT 1000)) || ' '
        || coalesce((SELECT max(finished_at) FROM holdfast_finished WHERE state = 'done'), '') || ' '
        || coalesce((SELECT max(finished_at) FROM holdfast_finished WHERE state = 'dead'), '') || ' '
        || coalesce((SELECT max(finished_at) FROM holdfast_finished WHERE state = 'cancelled'), '') AS jobs,
    (SELECT max(id) || ' ' || group_concat(state || '/' || coalesce(requested, '') || '/' || coalesce(unit_total, ''), ' ') FROM (
        SELECT id, state, requested, (SELECT sum(count) FROM holdfast_unit_count WHERE batch_id = batch.id) AS unit_total
        FROM holdfast_batch AS batch WHERE state IN ('ready', 'running', 'paused', 'stopped') ORDER BY id DESC LIMIT 50)) AS batches,
    coalesce((SELECT check_at FROM holdfast_schedule WHERE check_at IS NOT NULL ORDER BY check_at LIMIT 1), '') || ' '
        || coalesce((SELECT max(decided_at) FROM holdfast_skipped_plan), '') AS schedules,
    (SELECT count(*) || ' ' || coalesce(max(seen_at), '') || ' ' || coalesce(group_concat(requested), '')
        FROM holdfast_worker WHERE stopped_at IS NULL) AS workers,
    (SELECT group_concat(name || '/' || coalesce(run_limit, '') || '/' || coalesce(worker_limit, '') || '/' || paused, ' ')
        FROM holdfast_queue) AS queues,
    (SELECT CAST(max(id) AS TEXT) FROM holdfast_audit_entry) AS acts
