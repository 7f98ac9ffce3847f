-- Dashboard: counts stop at a cap and lists at a limit, so that the cost of a page does not grow with the jobs.

-- name: count_jobs_by_state
-- Count jobs by state, and the recently finished ones by queue and time slot, counted back from now.
-- planner: id > 0, queue >= '' and the orders keep each count in the index of its state.
SELECT 'held' AS state, '' AS queue, -1 AS slot, count(*) AS count
FROM (SELECT FROM holdfast.live WHERE state = 'held' AND id > 0 LIMIT :cap::bigint) AS capped
UNION ALL SELECT 'waiting', '', -1, count(*)
FROM (SELECT FROM holdfast.live WHERE state = 'waiting' AND id > 0 LIMIT :cap::bigint) AS capped
UNION ALL SELECT 'scheduled', '', -1, count(*)
FROM (SELECT FROM holdfast.live WHERE state = 'scheduled' AND id > 0 LIMIT :cap::bigint) AS capped
UNION ALL SELECT 'ready', '', -1, count(*)
FROM (SELECT FROM holdfast.live WHERE state = 'ready' AND queue >= '' LIMIT :cap::bigint) AS capped
UNION ALL SELECT 'running', '', -1, count(*) FROM (
    SELECT FROM holdfast.live WHERE lease_expires_at IS NOT NULL
    ORDER BY queue, lease_expires_at LIMIT :cap::bigint) AS capped
UNION ALL SELECT 'done', '', -1, count(*)
FROM (SELECT FROM holdfast.finished WHERE state = 'done' ORDER BY finished_at DESC LIMIT :cap::bigint) AS capped
UNION ALL SELECT 'dead', '', -1, count(*)
FROM (SELECT FROM holdfast.finished WHERE state = 'dead' ORDER BY finished_at DESC LIMIT :cap::bigint) AS capped
UNION ALL SELECT 'cancelled', '', -1, count(*)
FROM (SELECT FROM holdfast.finished WHERE state = 'cancelled' ORDER BY finished_at DESC LIMIT :cap::bigint) AS capped
UNION ALL SELECT state, queue, slot, count(*) FROM (
    SELECT state, queue, {slot_of_finish} AS slot FROM (
        SELECT * FROM (SELECT state, queue, finished_at FROM holdfast.finished
            WHERE state = 'done' AND finished_at > (SELECT holdfast.now()) - :span::interval
            ORDER BY finished_at DESC LIMIT :most::bigint) AS done
        UNION ALL
        SELECT * FROM (SELECT state, queue, finished_at FROM holdfast.finished
            WHERE state = 'dead' AND finished_at > (SELECT holdfast.now()) - :span::interval
            ORDER BY finished_at DESC LIMIT :most::bigint) AS dead
        UNION ALL
        SELECT * FROM (SELECT state, queue, finished_at FROM holdfast.finished
            WHERE state = 'cancelled' AND finished_at > (SELECT holdfast.now()) - :span::interval
            ORDER BY finished_at DESC LIMIT :most::bigint) AS cancelled) AS recent) AS slotted
GROUP BY state, queue, slot

-- name: list_problems
-- List the newest problems of each sort, each found by an index. The definition of a schedule serves to mask its text.
-- planner: conditions that follow from others name the condition of a partial index: SQLite does not infer it.
SELECT * FROM (SELECT 'expired' AS category, CAST(id AS text) AS name, kind AS detail, lease_expires_at AS at,
        CAST(1 AS bigint) AS count, CAST(NULL AS text) AS definition
    FROM holdfast.live WHERE lease_expires_at IS NOT NULL AND lease_expires_at < (SELECT holdfast.now())
    ORDER BY queue, lease_expires_at LIMIT :limit::bigint) AS expired
UNION ALL
SELECT * FROM (SELECT 'dead', CAST(id AS text), kind || ', ' || coalesce(reason, ''), finished_at, 1, NULL
    FROM holdfast.finished AS finished WHERE state = 'dead' AND state <> 'done' ORDER BY finished.id DESC LIMIT 1) AS dead
UNION ALL
SELECT * FROM (SELECT 'failing', name, substr(error, 1, 300), next_at, failures, definition::text
    FROM holdfast.schedule WHERE failures > 0 ORDER BY next_at LIMIT :limit::bigint) AS failing
UNION ALL
SELECT * FROM (SELECT 'late', name, NULL, next_at, 1, NULL
    FROM holdfast.schedule
    WHERE check_at IS NOT NULL AND check_at < (SELECT holdfast.now()) - :late::interval AND failures = 0
    ORDER BY check_at, name LIMIT :limit::bigint) AS late
UNION ALL
SELECT * FROM (SELECT 'paused_schedule', name, note, changed_at, 1, definition::text
    FROM holdfast.schedule WHERE paused ORDER BY name LIMIT :limit::bigint) AS paused
UNION ALL
SELECT * FROM (SELECT 'missed', schedule, reason, decided_at, count, NULL FROM holdfast.skipped_plan
    WHERE decided_at > (SELECT holdfast.now()) - :span::interval AND reason IN ('late', 'window', 'catch_up', 'backlog')
    ORDER BY decided_at DESC LIMIT :limit::bigint) AS missed
UNION ALL
SELECT * FROM (SELECT state || '_batch', CAST(id AS text), coalesce(aborted_by, kind),
        coalesce(finished_at, started_at), run_number, NULL
    FROM holdfast.batch AS batch
    WHERE state IN ('ready', 'running', 'paused', 'stopped') AND state IN ('paused', 'stopped')
    ORDER BY batch.id DESC LIMIT :limit::bigint) AS stopped
UNION ALL
-- The first running jobs only: their kinds and requests are read one by one.
SELECT * FROM (SELECT 'overdue', CAST(id AS text), worker, {run_deadline} AS deadline, 1, NULL
    FROM (SELECT id, kind, worker, started_at FROM holdfast.live AS live WHERE lease_expires_at IS NOT NULL
        ORDER BY queue, lease_expires_at LIMIT 500) AS run) AS overdue
WHERE deadline < (SELECT holdfast.now()) - :overdue::interval
UNION ALL
-- planner: state || '' as in offer_jobs: PostgreSQL uses live_refused and does not walk all held jobs.
SELECT * FROM (SELECT 'unreadable', kind, CAST(max(kind_version) AS text), NULL::timestamptz, count(*), NULL
    FROM (SELECT kind, kind_version FROM holdfast.live
        WHERE refusals IS NOT NULL AND state || '' = 'held' AND reader = '' LIMIT :cap::bigint) AS refused
    GROUP BY kind ORDER BY kind LIMIT :limit::bigint) AS unreadable

-- fragment: failed_job_columns
-- The payload serves to mask its secrets; a large one replaces the error by the reason.
id, kind, queue, at, CASE WHEN length(payload) <= 8192 THEN error ELSE reason END AS error,
    CASE WHEN length(payload) <= 8192 THEN payload ELSE '{}' END AS payload

-- fragment: failed_job_payload
coalesce((SELECT job.payload::text FROM holdfast.job AS job WHERE job.id = failed.id), '{}') AS payload

-- name: list_dead_job_errors
-- List errors of the newest dead jobs.
SELECT {failed_job_columns} FROM (SELECT id, kind, queue, finished_at AS at,
        substr(coalesce(error, reason, ''), 1, 600) AS error, coalesce(reason, '') AS reason, {failed_job_payload}
    FROM holdfast.finished AS failed WHERE state = 'dead' AND state <> 'done' AND failed.id < :before
    ORDER BY failed.id DESC LIMIT :limit::bigint) AS dead

-- name: list_retrying_job_errors
-- List the last errors of the newest jobs that wait for their next attempt.
SELECT {failed_job_columns} FROM (SELECT failed.id, failed.kind, failed.queue, attempt.finished_at AS at,
        substr(attempt.error, 1, 600) AS error, attempt.reason, {failed_job_payload}
    FROM (SELECT id, kind, queue, (SELECT max(token) FROM holdfast.attempt AS attempt
                WHERE attempt.job_id = live.id AND attempt.error IS NOT NULL) AS token
        FROM holdfast.live AS live WHERE attempts > 0 AND state <> 'running' AND id < :before
        ORDER BY id DESC LIMIT :limit::bigint) AS failed
    JOIN holdfast.attempt AS attempt ON attempt.job_id = failed.id AND attempt.token = failed.token) AS retrying

-- name: list_scheduled_lanes
-- Count the scheduled jobs that are due next, retries among them, by lane.
SELECT queue, kind, count(*) AS scheduled FROM (
    SELECT queue, kind FROM holdfast.live WHERE state = 'scheduled' ORDER BY due_at, id LIMIT :limit::bigint) AS due
GROUP BY queue, kind ORDER BY queue, kind

-- name: list_running_jobs
-- List running jobs with their progress.
SELECT id, kind, queue, worker, claimed_at, started_at, lease_expires_at,
    (SELECT done FROM holdfast.progress WHERE job_id = live.id) AS progress_done,
    (SELECT total FROM holdfast.progress WHERE job_id = live.id) AS progress_total
FROM holdfast.live AS live WHERE lease_expires_at IS NOT NULL ORDER BY queue, lease_expires_at LIMIT :limit::bigint
