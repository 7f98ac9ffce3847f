-- fragment: slot_of_finish
-- The number of whole slots between a finish and now.
floor(extract(epoch FROM ((SELECT holdfast.now()) - finished_at))
        / extract(epoch FROM :slot::interval))::integer

-- fragment: run_deadline
-- When a run should have finished; NULL without a limit.
run.started_at + make_interval(secs => nullif(coalesce((SELECT timeout FROM holdfast.job AS job WHERE job.id = run.id),
        (SELECT (options->>'timeout_seconds')::double precision FROM holdfast.kind AS kind WHERE name = run.kind)), 0))

-- fragment: lanes_with_jobs
-- The first :lanes lanes that have ready jobs: one index step per lane. Names that share a hash are among its first jobs.
head (queue, kind, step) AS (
    (SELECT queue, kind, 1 FROM holdfast.live WHERE state = 'ready'
        ORDER BY hashtextextended(queue, 0), hashtextextended(kind, 0) LIMIT 1)
    UNION ALL
    SELECT next_head.queue, next_head.kind, head.step + 1 FROM head CROSS JOIN LATERAL (
        SELECT queue, kind FROM holdfast.live
        WHERE state = 'ready' AND (hashtextextended(queue, 0), hashtextextended(kind, 0))
            > (hashtextextended(head.queue, 0), hashtextextended(head.kind, 0))
        ORDER BY hashtextextended(queue, 0), hashtextextended(kind, 0) LIMIT 1) AS next_head
    WHERE head.step < :lanes::bigint
), lane (queue, kind) AS (
    SELECT DISTINCT first_job.queue, first_job.kind FROM head CROSS JOIN LATERAL (
        SELECT queue, kind FROM holdfast.live
        WHERE state = 'ready' AND hashtextextended(queue, 0) = hashtextextended(head.queue, 0)
            AND hashtextextended(kind, 0) = hashtextextended(head.kind, 0) LIMIT 20) AS first_job

-- name: list_ready_lanes
-- Count ready jobs per lane: one index step per lane and per priority.
WITH RECURSIVE {lanes_with_jobs}
), level (queue, kind, priority, step) AS (
    SELECT queue, kind, (
        SELECT max(priority) FROM holdfast.live
        WHERE state = 'ready' AND holdfast.same(live.queue, lane.queue) AND holdfast.same(live.kind, lane.kind)
            AND holdfast.same(live.reader, '')), 1
    FROM lane
    UNION ALL
    SELECT queue, kind, (
        SELECT max(live.priority) FROM holdfast.live WHERE state = 'ready' AND holdfast.same(live.queue, level.queue)
            AND holdfast.same(live.kind, level.kind) AND holdfast.same(live.reader, '') AND live.priority < level.priority), step + 1
    FROM level WHERE priority IS NOT NULL AND step < 100
)
SELECT queue, kind, (SELECT count(*) FROM (
        SELECT FROM holdfast.live
        WHERE state = 'ready' AND holdfast.same(live.queue, level.queue) AND holdfast.same(live.kind, level.kind)
        LIMIT :cap::bigint) AS capped) AS ready,
    (SELECT holdfast.now()) - min((
        SELECT min(due_at) FROM holdfast.live WHERE state = 'ready' AND holdfast.same(live.queue, level.queue)
            AND holdfast.same(live.kind, level.kind) AND holdfast.same(live.reader, '') AND live.priority = level.priority)) AS waited
FROM level WHERE priority IS NOT NULL GROUP BY queue, kind

-- name: list_active_queues
-- List queues that have settings, or jobs that are not ready, with the numbers of these jobs.
WITH RECURSIVE busy (name, step) AS (
    (SELECT queue, 1 FROM holdfast.live WHERE lease_expires_at IS NOT NULL ORDER BY queue, lease_expires_at LIMIT 1)
    UNION ALL
    SELECT next_queue.queue, busy.step + 1 FROM busy CROSS JOIN LATERAL (
        SELECT queue FROM holdfast.live WHERE lease_expires_at IS NOT NULL AND queue > busy.name
        ORDER BY queue, lease_expires_at LIMIT 1) AS next_queue
    WHERE busy.step < :lanes::bigint
), parked (name, step) AS (
    (SELECT queue, 1 FROM holdfast.live WHERE substr(state, 1, 1) <> 'r'
        ORDER BY queue, state LIMIT 1)
    UNION ALL
    SELECT next_queue.queue, parked.step + 1 FROM parked CROSS JOIN LATERAL (
        SELECT queue FROM holdfast.live WHERE substr(state, 1, 1) <> 'r' AND queue > parked.name
        ORDER BY queue, state LIMIT 1) AS next_queue
    WHERE parked.step < :lanes::bigint
)
SELECT names.name, queue.run_limit AS "limit", queue.worker_limit, coalesce(queue.paused, false) AS paused, queue.note,
    queue.scale_min, queue.scale_max,
    (SELECT count(*) FROM (
        SELECT FROM holdfast.live WHERE live.queue = names.name AND lease_expires_at IS NOT NULL
        LIMIT :cap::bigint) AS capped) AS running,
    (SELECT count(*) FROM (
        SELECT FROM holdfast.live WHERE live.queue = names.name AND lease_expires_at < (SELECT holdfast.now())
        LIMIT :cap::bigint) AS capped) AS expired,
    -- planner: substr with BETWEEN fits live_parked only; with = the planner walks the index of one state.
    (SELECT count(*) FROM (
        SELECT FROM holdfast.live WHERE live.queue = names.name
            AND substr(state, 1, 1) <> 'r' AND state BETWEEN 'scheduled' AND 'scheduled'
        LIMIT :cap::bigint) AS capped) AS scheduled,
    (SELECT count(*) FROM (
        SELECT FROM holdfast.live WHERE live.queue = names.name
            AND substr(state, 1, 1) <> 'r' AND state BETWEEN 'waiting' AND 'waiting'
        LIMIT :cap::bigint) AS capped) AS waiting,
    (SELECT count(*) FROM (
        SELECT FROM holdfast.live WHERE live.queue = names.name
            AND substr(state, 1, 1) <> 'r' AND state BETWEEN 'held' AND 'held'
        LIMIT :cap::bigint) AS capped) AS held
FROM (SELECT name FROM holdfast.queue UNION SELECT name FROM busy UNION SELECT name FROM parked) AS names
LEFT JOIN holdfast.queue ON queue.name = names.name

-- name: read_change_tokens
-- Read one token per area of the store. A token changes when something in its area changes.
SELECT concat_ws(' ', (SELECT max(id) FROM holdfast.job), pg_stat_get_tuples_inserted('holdfast.job'::regclass),
        (SELECT max(id) FROM holdfast.event),
        (SELECT concat_ws('/', count(*), sum(token), sum(progress), max(claimed_at)) FROM (
            SELECT token, claimed_at, (SELECT done FROM holdfast.progress WHERE job_id = live.id) AS progress
            FROM holdfast.live WHERE lease_expires_at IS NOT NULL
            ORDER BY queue, lease_expires_at LIMIT 1000) AS running),
        (SELECT finished_at FROM holdfast.finished WHERE state = 'done' ORDER BY finished_at DESC LIMIT 1),
        (SELECT finished_at FROM holdfast.finished WHERE state = 'dead' ORDER BY finished_at DESC LIMIT 1),
        (SELECT finished_at FROM holdfast.finished WHERE state = 'cancelled'
            ORDER BY finished_at DESC LIMIT 1)) AS jobs,
    (SELECT concat_ws(' ', max(id), string_agg(concat_ws('/', state, requested, unit_total), ' ')) FROM (
        SELECT id, state, requested,
            (SELECT sum(count) FROM holdfast.unit_count WHERE batch_id = batch.id) AS unit_total
        FROM holdfast.batch
        WHERE state IN ('ready', 'running', 'paused', 'stopped') ORDER BY id DESC LIMIT 50) AS open) AS batches,
    concat_ws(' ', (SELECT check_at FROM holdfast.schedule WHERE check_at IS NOT NULL ORDER BY check_at LIMIT 1),
        (SELECT decided_at FROM holdfast.skipped_plan ORDER BY decided_at DESC LIMIT 1)) AS schedules,
    (SELECT concat_ws(' ', count(*), max(seen_at), string_agg(requested, ',')) FROM holdfast.worker
        WHERE stopped_at IS NULL) AS workers,
    concat_ws(' ', (SELECT md5(string_agg(concat_ws('/', name, run_limit, worker_limit, paused), ' '))
        FROM holdfast.queue), (SELECT at FROM holdfast.stop_switch)) AS queues,
    (SELECT max(id) FROM holdfast.audit_entry)::text AS audit
