-- fragment: ready_queues
-- The queues that have ready jobs, one index step per hash. Names that share a hash are among its first jobs, or have
-- settings: those are searched by name.
WITH RECURSIVE head (name) AS (
    (SELECT queue FROM holdfast.live WHERE state = 'ready' ORDER BY hashtextextended(queue, 0) LIMIT 1)
    UNION ALL
    SELECT (SELECT queue FROM holdfast.live
        WHERE state = 'ready' AND hashtextextended(queue, 0) > hashtextextended(head.name, 0)
        ORDER BY hashtextextended(queue, 0) LIMIT 1)
    FROM head WHERE head.name IS NOT NULL
)
SELECT first_job.queue AS name FROM head CROSS JOIN LATERAL (
    -- planner: LIMIT; all jobs of a hash would be all ready jobs of a queue.
    SELECT queue FROM holdfast.live
    WHERE state = 'ready' AND hashtextextended(queue, 0) = hashtextextended(head.name, 0) LIMIT 20) AS first_job
UNION
SELECT queue.name FROM holdfast.queue
WHERE (SELECT true FROM holdfast.live WHERE state = 'ready' AND holdfast.same(live.queue, queue.name) LIMIT 1)

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
