-- fragment: ready_queues
-- The queues that have ready jobs, one index step per queue.
WITH RECURSIVE ready_queue (name) AS (
    (SELECT queue FROM holdfast.live WHERE state = 'ready' ORDER BY hashtextextended(queue, 0) LIMIT 1)
    UNION ALL
    SELECT (SELECT queue FROM holdfast.live
        WHERE state = 'ready' AND hashtextextended(queue, 0) > hashtextextended(ready_queue.name, 0)
        ORDER BY hashtextextended(queue, 0) LIMIT 1)
    FROM ready_queue WHERE ready_queue.name IS NOT NULL
)
SELECT name FROM ready_queue WHERE name IS NOT NULL

-- name: list_ready_queues
-- List the queues that have ready jobs.
{ready_queues}

-- name: get_queue_usage
-- Read the limits of a queue and its running jobs.
SELECT queue.name, queue.run_limit AS "limit", queue.worker_limit, running.everywhere AS running,
    running.here AS running_here
FROM holdfast.queue CROSS JOIN LATERAL (
    SELECT count(*) AS everywhere, count(*) FILTER (WHERE live.worker = :worker) AS here
    FROM holdfast.live WHERE live.queue = queue.name AND live.lease_expires_at IS NOT NULL) AS running
WHERE queue.name = :name
