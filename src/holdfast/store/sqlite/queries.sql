-- name: by_labels
-- Condition: one of these labels, or a label below one of them, as those of a sweep are: sw/year=2020 is below sw.
listed.id IN (
    SELECT job.id FROM json_each(:labels) AS chosen CROSS JOIN holdfast_job AS job WHERE job.label = chosen.value
    UNION ALL SELECT job.id FROM json_each(:labels) AS chosen CROSS JOIN holdfast_job AS job
    WHERE job.label >= chosen.value || '/' AND job.label < chosen.value || '0')

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

-- name: only_done
-- Condition: done.
-- planner: +state keeps the order by id; the index of states would sort all done jobs.
+listed.state = 'done' AND listed.is_finished

-- name: only_dead
-- Condition: dead.
-- planner: state <> 'done' names the condition of finished_unsuccessful: SQLite does not infer it.
listed.state = 'dead' AND listed.state <> 'done' AND listed.is_finished

-- name: only_cancelled
-- Condition: cancelled.
listed.state = 'cancelled' AND listed.state <> 'done' AND listed.is_finished

-- name: get_own_job
-- Read a job that this login has enqueued, if it may read no others. A file has no roles.
SELECT {job_columns} FROM (
    SELECT * FROM holdfast.live_view UNION ALL SELECT * FROM holdfast.finished_view) AS listed WHERE id = :id
