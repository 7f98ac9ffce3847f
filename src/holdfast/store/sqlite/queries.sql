-- Queries: lists of jobs, their history, and the conditions of selectors.

-- name: count_jobs_ahead
-- Count ready jobs of the same lane that are claimed earlier, up to 1,000.
SELECT count(*) FROM (
    SELECT 1 FROM holdfast_live
    WHERE state = 'ready' AND queue = :queue AND kind = :kind
        AND (priority > :priority OR priority = :priority AND (due_at, id) < (:due_at, :id))
    LIMIT 1000)

-- name: explain_job
-- Read all numbers that explain why a job does not run, in one row.
SELECT :now AS now, queue.name, queue.run_limit AS "limit", queue.worker_limit, coalesce(queue.paused, 0) AS paused, queue.note,
    (SELECT count(*) FROM holdfast_live AS live WHERE live.queue = :queue AND live.lease_expires_at IS NOT NULL) AS running,
    (SELECT count(*) FROM holdfast_worker
        WHERE stopped_at IS NULL AND seen_at > :now - :silence
            AND :queue IN (SELECT value FROM json_each(queues)) AND :kind IN (SELECT value FROM json_each(kinds))) AS workers,
    (SELECT count(*) FROM (
        SELECT * FROM (SELECT 1 FROM holdfast_live AS live
        WHERE state = 'ready' AND live.queue = :queue AND kind = :kind AND priority > :priority
        ORDER BY priority DESC, due_at, id LIMIT 1000)
        UNION ALL
        SELECT * FROM (SELECT 1 FROM holdfast_live AS live
        WHERE state = 'ready' AND live.queue = :queue AND kind = :kind AND priority = :priority
            AND (due_at, id) < (:due_at, :id)
        ORDER BY due_at, id LIMIT 1000)
        LIMIT 1000)) AS ahead
FROM (SELECT 1) AS single_row LEFT JOIN holdfast_queue AS queue ON queue.name = :queue

-- name: list_dependency_edges
-- Walk the dependencies and dependents of a job; each edge comes with the job at its far end.
WITH RECURSIVE up (job_id, dependency_id, depth) AS (
    SELECT job_id, dependency_id, 1 FROM holdfast_dependency WHERE job_id = :id
    UNION
    SELECT dependency.job_id, dependency.dependency_id, up.depth + 1 FROM up JOIN holdfast_dependency AS dependency ON dependency.job_id = up.dependency_id
    WHERE up.depth < :depth
    LIMIT :limit
), down (job_id, dependency_id, depth) AS (
    SELECT job_id, dependency_id, 1 FROM holdfast_dependency WHERE dependency_id = :id
    UNION
    SELECT dependency.job_id, dependency.dependency_id, down.depth + 1 FROM down JOIN holdfast_dependency AS dependency ON dependency.dependency_id = down.job_id
    WHERE down.depth < :depth
    LIMIT :limit
)
SELECT way, job_id, dependency_id, depth,
    coalesce((SELECT state FROM holdfast_live AS live WHERE live.id = far_id),
        (SELECT state FROM holdfast_finished AS finished WHERE finished.id = far_id)) AS state,
    (SELECT kind FROM holdfast_job AS job WHERE job.id = far_id) AS kind,
    (SELECT label FROM holdfast_job AS job WHERE job.id = far_id) AS label
FROM (
    SELECT 'dependencies' AS way, job_id, dependency_id, depth, dependency_id AS far_id FROM up
    UNION ALL
    SELECT 'dependents', job_id, dependency_id, depth, job_id FROM down) AS edges

-- name: like_labels
-- Condition: a label like one of these patterns.
EXISTS (SELECT 1 FROM json_each(:labels) AS requested WHERE listed.label GLOB requested.value)

-- name: by_tags
-- Condition: one of these tags.
EXISTS (SELECT 1 FROM json_each(listed.tags) AS tag WHERE tag.value IN (SELECT value FROM json_each(:tags)))

-- name: like_queues
-- Condition: a queue like one of these patterns.
EXISTS (SELECT 1 FROM json_each(:queues) AS requested WHERE listed.queue GLOB requested.value)

-- name: like_kinds
-- Condition: a kind like one of these patterns.
EXISTS (SELECT 1 FROM json_each(:kinds) AS requested WHERE listed.kind GLOB requested.value)

-- name: by_error
-- Condition: an error that contains a text, in any case.
instr(lower(listed.error), lower(:error)) > 0

-- name: only_done
-- Condition: done.
+listed.state = 'done' AND listed.is_finished

-- name: only_dead
-- Condition: dead.
listed.state = 'dead' AND listed.state <> 'done' AND listed.is_finished

-- name: only_cancelled
-- Condition: cancelled.
listed.state = 'cancelled' AND listed.state <> 'done' AND listed.is_finished
