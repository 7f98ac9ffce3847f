-- fragment: ready_queues
-- The queues that have ready jobs, one index step per queue.
WITH RECURSIVE ready_queue (name) AS (
    SELECT min(queue) FROM holdfast_live WHERE state = 'ready'
    UNION ALL
    SELECT (SELECT min(queue) FROM holdfast_live WHERE state = 'ready' AND queue > ready_queue.name)
    FROM ready_queue WHERE ready_queue.name IS NOT NULL
)
SELECT name FROM ready_queue WHERE name IS NOT NULL

-- name: list_ready_queues
-- List the queues that have ready jobs.
{ready_queues}

-- name: get_queue_usage
-- Read the limits of a queue and its running jobs.
SELECT queue.name, queue.run_limit AS "limit", queue.worker_limit, count(live.id) AS running,
    count(live.id) FILTER (WHERE live.worker = :worker) AS running_here
FROM holdfast_queue AS queue
LEFT JOIN holdfast_live AS live ON live.queue = queue.name AND live.lease_expires_at IS NOT NULL
WHERE queue.name = :name GROUP BY queue.name
