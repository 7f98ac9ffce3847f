-- Dashboard: counts stop at a cap and lists at a limit, so that the cost of a page does not grow with the jobs.

-- name: list_dead_job_errors
-- List errors of the newest dead jobs. The payload serves to mask its secrets; a large one replaces the error by the
-- reason.
SELECT id, kind, queue, at, CASE WHEN length(payload) <= 8192 THEN error ELSE reason END AS error,
    CASE WHEN length(payload) <= 8192 THEN payload ELSE '{}' END AS payload
FROM (
    SELECT id, kind, queue, finished_at AS at, substr(coalesce(error, reason, ''), 1, 600) AS error, coalesce(reason, '') AS reason,
        coalesce((SELECT job.payload::text FROM holdfast.job AS job WHERE job.id = finished.id), '{}') AS payload
    FROM holdfast.finished AS finished WHERE state = 'dead' AND state <> 'done' AND finished.id < :before
    ORDER BY finished.id DESC LIMIT :limit::bigint) AS dead
