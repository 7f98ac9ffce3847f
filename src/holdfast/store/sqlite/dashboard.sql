-- fragment: slot_of_finish
-- The number of whole slots between a finish and now.
(:now - finished_at) / :slot

-- fragment: run_deadline
-- When a run should have finished; NULL without a limit.
run.started_at + CAST(1000000 * nullif(coalesce((SELECT timeout FROM holdfast_job AS job WHERE job.id = run.id),
        (SELECT options ->> 'timeout_seconds' FROM holdfast_kind AS kind WHERE name = run.kind)), 0) AS INTEGER)

-- fragment: lanes_with_jobs
-- The first :lanes lanes that have ready jobs: one index step per lane.
lane (queue, kind, step) AS (
    SELECT queue, kind, 1 FROM holdfast_live WHERE id = (
        SELECT id FROM holdfast_live WHERE state = 'ready' AND queue >= ''
        ORDER BY queue, kind, reader, priority DESC, due_at, id LIMIT 1)
    UNION ALL
    -- planner: two lookups; with (queue, kind) > (...) SQLite walks the rest of the queue.
    SELECT live.queue, live.kind, lane.step + 1 FROM lane CROSS JOIN holdfast_live AS live ON live.id = coalesce((
        SELECT id FROM holdfast_live WHERE state = 'ready' AND queue = lane.queue AND kind > lane.kind
        ORDER BY queue, kind, reader, priority DESC, due_at, id LIMIT 1), (
        SELECT id FROM holdfast_live WHERE state = 'ready' AND queue > lane.queue
        ORDER BY queue, kind, reader, priority DESC, due_at, id LIMIT 1))
    WHERE lane.step < :lanes

-- name: list_ready_lanes
-- Count ready jobs per lane: one index step per lane and per priority.
WITH RECURSIVE {lanes_with_jobs}
), level (queue, kind, priority, step) AS (
    SELECT queue, kind, (
        SELECT max(priority) FROM holdfast_live AS live
        WHERE state = 'ready' AND live.queue = lane.queue AND live.kind = lane.kind AND live.reader = ''), 1
    FROM lane
    UNION ALL
    SELECT queue, kind, (
        SELECT max(live.priority) FROM holdfast_live AS live WHERE state = 'ready' AND live.queue = level.queue
            AND live.kind = level.kind AND live.reader = '' AND live.priority < level.priority), step + 1
    FROM level WHERE priority IS NOT NULL AND step < 100
)
SELECT queue, kind, (SELECT count(*) FROM (
        SELECT 1 FROM holdfast_live AS live
        WHERE state = 'ready' AND live.queue = level.queue AND live.kind = level.kind LIMIT :cap)) AS ready,
    :now - min((
        SELECT min(due_at) FROM holdfast_live AS live WHERE state = 'ready' AND live.queue = level.queue
            AND live.kind = level.kind AND live.reader = '' AND live.priority = level.priority)) AS waited
FROM level WHERE priority IS NOT NULL GROUP BY queue, kind

-- name: list_active_queues
-- List queues that have settings, or jobs that are not ready, with the numbers of these jobs.
WITH RECURSIVE busy (name, step) AS (
    SELECT min(queue), 1 FROM holdfast_live WHERE lease_expires_at IS NOT NULL
    UNION ALL
    SELECT (SELECT min(queue) FROM holdfast_live WHERE lease_expires_at IS NOT NULL AND queue > busy.name),
        busy.step + 1
    FROM busy WHERE busy.name IS NOT NULL AND busy.step < :lanes
), parked (name, step) AS (
    SELECT min(queue), 1 FROM holdfast_live WHERE substr(state, 1, 1) <> 'r'
    UNION ALL
    SELECT (SELECT min(queue) FROM holdfast_live
            WHERE substr(state, 1, 1) <> 'r' AND queue > parked.name), parked.step + 1
    FROM parked WHERE parked.name IS NOT NULL AND parked.step < :lanes
)
SELECT names.name, queue.run_limit AS "limit", queue.worker_limit, coalesce(queue.paused, 0) AS paused, queue.note,
    queue.scale_min, queue.scale_max,
    (SELECT count(*) FROM (
        SELECT 1 FROM holdfast_live AS live
        WHERE live.queue = names.name AND lease_expires_at IS NOT NULL LIMIT :cap)) AS running,
    (SELECT count(*) FROM (
        SELECT 1 FROM holdfast_live AS live
        WHERE live.queue = names.name AND lease_expires_at < :now LIMIT :cap)) AS expired,
    -- planner: substr names the condition of live_parked: SQLite does not infer it.
    (SELECT count(*) FROM (
        SELECT 1 FROM holdfast_live AS live WHERE live.queue = names.name
            AND substr(state, 1, 1) <> 'r' AND state = 'scheduled' LIMIT :cap)) AS scheduled,
    (SELECT count(*) FROM (
        SELECT 1 FROM holdfast_live AS live WHERE live.queue = names.name
            AND substr(state, 1, 1) <> 'r' AND state = 'waiting' LIMIT :cap)) AS waiting,
    (SELECT count(*) FROM (
        SELECT 1 FROM holdfast_live AS live WHERE live.queue = names.name
            AND substr(state, 1, 1) <> 'r' AND state = 'held' LIMIT :cap)) AS held
FROM (SELECT name FROM holdfast_queue UNION SELECT name FROM busy WHERE name IS NOT NULL
    UNION SELECT name FROM parked WHERE name IS NOT NULL) AS names
LEFT JOIN holdfast_queue AS queue ON queue.name = names.name

-- name: read_change_tokens
-- Read one token per area of the store. A token changes when something in its area changes.
SELECT (SELECT max(id) FROM holdfast_job) || ' ' || coalesce((SELECT max(id) FROM holdfast_event), '') || ' '
        || (SELECT count(*) || '/' || coalesce(sum(token), '') || '/' || coalesce(sum(progress), '') || '/'
            || coalesce(max(claimed_at), '')
            FROM (SELECT token, claimed_at, (SELECT done FROM holdfast_progress WHERE job_id = live.id) AS progress
            FROM holdfast_live AS live WHERE lease_expires_at IS NOT NULL LIMIT 1000)) || ' '
        || coalesce((SELECT max(finished_at) FROM holdfast_finished WHERE state = 'done'), '') || ' '
        || coalesce((SELECT max(finished_at) FROM holdfast_finished WHERE state = 'dead'), '') || ' '
        || coalesce((SELECT max(finished_at) FROM holdfast_finished WHERE state = 'cancelled'), '') AS jobs,
    (SELECT max(id) || ' '
            || group_concat(state || '/' || coalesce(requested, '') || '/' || coalesce(unit_total, ''), ' ') FROM (
        SELECT id, state, requested,
            (SELECT sum(count) FROM holdfast_unit_count WHERE batch_id = batch.id) AS unit_total
        FROM holdfast_batch AS batch
        WHERE state IN ('ready', 'running', 'paused', 'stopped') ORDER BY id DESC LIMIT 50)) AS batches,
    coalesce((SELECT check_at FROM holdfast_schedule WHERE check_at IS NOT NULL ORDER BY check_at LIMIT 1), '') || ' '
        || coalesce((SELECT max(decided_at) FROM holdfast_skipped_plan), '') AS schedules,
    (SELECT count(*) || ' ' || coalesce(max(seen_at), '') || ' ' || coalesce(group_concat(requested), '')
        FROM holdfast_worker WHERE stopped_at IS NULL) AS workers,
    (SELECT coalesce(group_concat(
            name || '/' || coalesce(run_limit, '') || '/' || coalesce(worker_limit, '') || '/' || paused, ' '), '')
        FROM holdfast_queue) || ' ' || coalesce((SELECT at FROM holdfast_stop_switch), '') AS queues,
    (SELECT CAST(max(id) AS TEXT) FROM holdfast_audit_entry) AS audit
