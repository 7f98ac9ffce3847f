-- Dashboard: counts stop at a cap and lists at a limit, so that the cost of a page does not grow with the jobs.

-- name: list_ready_lanes
-- Count ready jobs per lane: one index step per lane and per priority.
WITH RECURSIVE lane (queue, kind, step) AS (
    (SELECT queue, kind, 1 FROM holdfast.live WHERE state = 'ready' ORDER BY queue, kind LIMIT 1)
    UNION ALL
    SELECT next_lane.queue, next_lane.kind, lane.step + 1 FROM lane CROSS JOIN LATERAL (
        SELECT queue, kind FROM holdfast.live
        WHERE state = 'ready' AND (queue, kind) > (lane.queue, lane.kind) ORDER BY queue, kind LIMIT 1) AS next_lane
    WHERE lane.step < :lanes::bigint
), level (queue, kind, priority, step) AS (
    SELECT queue, kind, (
        SELECT max(priority) FROM holdfast.live
        WHERE state = 'ready' AND live.queue = lane.queue AND live.kind = lane.kind), 1
    FROM lane
    UNION ALL
    SELECT queue, kind, (
        SELECT max(live.priority) FROM holdfast.live WHERE state = 'ready' AND live.queue = level.queue
            AND live.kind = level.kind AND live.priority < level.priority), step + 1
    FROM level WHERE priority IS NOT NULL AND step < 100
)
SELECT queue, kind, (SELECT count(*) FROM (
        SELECT FROM holdfast.live
        WHERE state = 'ready' AND live.queue = level.queue AND live.kind = level.kind LIMIT :cap::bigint) AS capped) AS ready,
    (SELECT holdfast.now()) - min((
        SELECT min(due_at) FROM holdfast.live WHERE state = 'ready' AND live.queue = level.queue
            AND live.kind = level.kind AND live.priority = level.priority)) AS waited
FROM level WHERE priority IS NOT NULL GROUP BY queue, kind

-- name: list_active_queues
-- List queues that have settings or running jobs.
WITH RECURSIVE busy (name, step) AS (
    (SELECT queue, 1 FROM holdfast.live WHERE lease_expires_at IS NOT NULL ORDER BY queue, lease_expires_at LIMIT 1)
    UNION ALL
    SELECT next_lane.queue, busy.step + 1 FROM busy CROSS JOIN LATERAL (
        SELECT queue FROM holdfast.live WHERE lease_expires_at IS NOT NULL AND queue > busy.name
        ORDER BY queue, lease_expires_at LIMIT 1) AS next_lane
    WHERE busy.step < :lanes::bigint
)
SELECT names.name, queue.run_limit AS "limit", queue.worker_limit, coalesce(queue.paused, false) AS paused, queue.note,
    (SELECT count(*) FROM (
        SELECT FROM holdfast.live WHERE live.queue = names.name AND lease_expires_at IS NOT NULL LIMIT :cap::bigint) AS capped) AS running,
    (SELECT count(*) FROM (
        SELECT FROM holdfast.live WHERE live.queue = names.name AND lease_expires_at < (SELECT holdfast.now())
        LIMIT :cap::bigint) AS capped) AS expired
FROM (SELECT name FROM holdfast.queue UNION SELECT name FROM busy) AS names
LEFT JOIN holdfast.queue ON queue.name = names.name

-- name: count_jobs_by_state
-- Count jobs by state, and the recently finished ones by queue and time slot, counted back from now.
SELECT 'held' AS state, '' AS queue, -1 AS slot, count(*) AS count
FROM (SELECT FROM holdfast.live WHERE state = 'held' LIMIT :cap::bigint) AS capped
UNION ALL SELECT 'waiting', '', -1, count(*)
FROM (SELECT FROM holdfast.live WHERE state = 'waiting' LIMIT :cap::bigint) AS capped
UNION ALL SELECT 'scheduled', '', -1, count(*)
FROM (SELECT FROM holdfast.live WHERE state = 'scheduled' LIMIT :cap::bigint) AS capped
UNION ALL SELECT 'ready', '', -1, count(*)
FROM (SELECT FROM holdfast.live WHERE state = 'ready' LIMIT :cap::bigint) AS capped
UNION ALL SELECT 'running', '', -1, count(*)
FROM (SELECT FROM holdfast.live WHERE lease_expires_at IS NOT NULL ORDER BY queue, lease_expires_at LIMIT :cap::bigint) AS capped
UNION ALL SELECT 'done', '', -1, count(*)
FROM (SELECT FROM holdfast.finished WHERE state = 'done' ORDER BY finished_at DESC LIMIT :cap::bigint) AS capped
UNION ALL SELECT 'dead', '', -1, count(*)
FROM (SELECT FROM holdfast.finished WHERE state = 'dead' ORDER BY finished_at DESC LIMIT :cap::bigint) AS capped
UNION ALL SELECT 'cancelled', '', -1, count(*)
FROM (SELECT FROM holdfast.finished WHERE state = 'cancelled' ORDER BY finished_at DESC LIMIT :cap::bigint) AS capped
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
    ) AS recent) AS slotted
GROUP BY state, queue, slot

-- name: list_problems
-- List the newest problems of each sort, each found by an index.
(SELECT 'expired' AS category, id::text AS name, kind AS detail, lease_expires_at AS at, 1::bigint AS count FROM holdfast.live
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

-- name: list_running_jobs
-- List running jobs with their progress.
SELECT live.id, live.kind, live.queue, live.worker, live.claimed_at, live.started_at, live.lease_expires_at, progress.done AS progress_done,
    progress.total AS progress_total
FROM (
    SELECT id, kind, queue, worker, claimed_at, started_at, lease_expires_at FROM holdfast.live
    WHERE lease_expires_at IS NOT NULL ORDER BY queue, lease_expires_at LIMIT :limit::bigint) AS live
LEFT JOIN LATERAL (SELECT done, total FROM holdfast.progress WHERE job_id = live.id LIMIT 1) AS progress ON true

-- name: read_change_tokens
-- Read one token per area of the store. A token changes when something in its area changes.
SELECT concat_ws(' ', (SELECT max(id) FROM holdfast.job), pg_stat_get_tuples_inserted('holdfast.job'::regclass),
        (SELECT max(id) FROM holdfast.event),
        (SELECT concat_ws('/', count(*), sum(token), sum(progress), max(claimed_at)) FROM (
            SELECT token, claimed_at, (SELECT done FROM holdfast.progress WHERE job_id = live.id) AS progress
            FROM holdfast.live WHERE lease_expires_at IS NOT NULL ORDER BY queue, lease_expires_at LIMIT 1000) AS running),
        (SELECT finished_at FROM holdfast.finished WHERE state = 'done' ORDER BY finished_at DESC LIMIT 1),
        (SELECT finished_at FROM holdfast.finished WHERE state = 'dead' ORDER BY finished_at DESC LIMIT 1),
        (SELECT finished_at FROM holdfast.finished WHERE state = 'cancelled' ORDER BY finished_at DESC LIMIT 1)) AS jobs,
    (SELECT concat_ws(' ', max(id), string_agg(concat_ws('/', state, requested, unit_total), ' ')) FROM (
        SELECT id, state, requested, (SELECT sum(count) FROM holdfast.unit_count WHERE batch_id = batch.id) AS unit_total
        FROM holdfast.batch WHERE state IN ('ready', 'running', 'paused', 'stopped') ORDER BY id DESC LIMIT 50) AS open) AS batches,
    concat_ws(' ', (SELECT check_at FROM holdfast.schedule WHERE check_at IS NOT NULL ORDER BY check_at LIMIT 1),
        (SELECT decided_at FROM holdfast.skipped_plan ORDER BY decided_at DESC LIMIT 1)) AS schedules,
    (SELECT concat_ws(' ', count(*), max(seen_at), string_agg(requested, ',')) FROM holdfast.worker WHERE stopped_at IS NULL) AS workers,
    (SELECT md5(string_agg(concat_ws('/', name, run_limit, worker_limit, paused), ' ')) FROM holdfast.queue) AS queues,
    (SELECT max(id) FROM holdfast.audit_entry)::text AS acts
