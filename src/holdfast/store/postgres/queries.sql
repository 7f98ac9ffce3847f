-- Queries: lists of jobs, their history, and the conditions of selectors.

-- name: count_jobs_ahead
-- Count ready jobs of the same lane that are claimed earlier, up to 1,000.
SELECT count(*) FROM (
    (SELECT 1 FROM holdfast.live
    WHERE state = 'ready' AND queue = :queue AND kind = :kind AND priority > :priority
    ORDER BY priority DESC, due_at, id LIMIT 1000)
    UNION ALL
    (SELECT 1 FROM holdfast.live
    WHERE state = 'ready' AND queue = :queue AND kind = :kind AND priority = :priority
        AND (due_at, id) < (:due_at::timestamptz, :id::bigint)
    ORDER BY due_at, id LIMIT 1000)
    LIMIT 1000) AS capped

-- name: explain_job
-- Read all numbers that explain why a job does not run, in one row.
SELECT (SELECT holdfast.now()) AS now, queue.name, queue.run_limit AS "limit", queue.worker_limit,
    coalesce(queue.paused, false) AS paused, queue.note,
    (SELECT count(*) FROM holdfast.live WHERE live.queue = :queue AND live.lease_expires_at IS NOT NULL) AS running,
    (SELECT count(*) FROM holdfast.worker WHERE stopped_at IS NULL
        AND seen_at > (SELECT holdfast.now()) - :silence::interval AND :queue = ANY(queues) AND :kind = ANY(kinds)) AS workers,
    (SELECT count(*) FROM (
        (SELECT 1 FROM holdfast.live
        WHERE state = 'ready' AND live.queue = :queue AND kind = :kind AND priority > :priority
        ORDER BY priority DESC, due_at, id LIMIT 1000)
        UNION ALL
        (SELECT 1 FROM holdfast.live
        WHERE state = 'ready' AND live.queue = :queue AND kind = :kind AND priority = :priority
            AND (due_at, id) < (:due_at::timestamptz, :id::bigint)
        ORDER BY due_at, id LIMIT 1000)
        LIMIT 1000) AS capped) AS ahead
FROM (SELECT 1) AS single_row LEFT JOIN holdfast.queue ON queue.name = :queue

-- name: list_dependency_edges
-- Walk the dependencies and dependents of a job; each edge comes with the job at its far end.
WITH RECURSIVE up (job_id, dependency_id, depth) AS (
    SELECT job_id, dependency_id, 1 FROM holdfast.dependency WHERE job_id = :id
    UNION
    SELECT dependency.job_id, dependency.dependency_id, up.depth + 1 FROM up JOIN holdfast.dependency ON dependency.job_id = up.dependency_id
    WHERE up.depth < :depth::bigint
), down (job_id, dependency_id, depth) AS (
    SELECT job_id, dependency_id, 1 FROM holdfast.dependency WHERE dependency_id = :id
    UNION
    SELECT dependency.job_id, dependency.dependency_id, down.depth + 1 FROM down JOIN holdfast.dependency ON dependency.dependency_id = down.job_id
    WHERE down.depth < :depth::bigint
)
SELECT way, job_id, dependency_id, depth,
    coalesce((SELECT state FROM holdfast.live WHERE live.id = far_id), (SELECT state FROM holdfast.finished WHERE finished.id = far_id)) AS state,
    (SELECT kind FROM holdfast.job WHERE job.id = far_id) AS kind,
    (SELECT label FROM holdfast.job WHERE job.id = far_id) AS label
FROM (
    (SELECT 'dependencies' AS way, job_id, dependency_id, depth, dependency_id AS far_id FROM up LIMIT :limit::bigint)
    UNION ALL
    (SELECT 'dependents', job_id, dependency_id, depth, job_id FROM down LIMIT :limit::bigint)) AS edges

-- name: like_labels
-- Condition: a label like one of these patterns.
listed.label LIKE ANY(:labels::text[])

-- name: by_tags
-- Condition: one of these tags.
listed.tags::jsonb ?| :tags::text[]

-- name: like_queues
-- Condition: a queue like one of these patterns.
listed.queue LIKE ANY(:queues::text[])

-- name: like_kinds
-- Condition: a kind like one of these patterns.
listed.kind LIKE ANY(:kinds::text[])

-- name: by_error
-- Condition: an error that contains a text, in any case.
position(lower(:error) IN lower(listed.error)) > 0

-- name: only_done
-- Condition: done.
listed.state = 'done' AND listed.is_finished

-- name: only_dead
-- Condition: dead.
listed.state = 'dead' AND listed.is_finished

-- name: only_cancelled
-- Condition: cancelled.
listed.state = 'cancelled' AND listed.is_finished
