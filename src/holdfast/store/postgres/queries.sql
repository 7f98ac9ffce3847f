-- name: by_labels
-- Condition: one of these labels, or a label below one of them, as those of a sweep are: sw/year=2020 is below sw.
-- planner: each part is a range of job_label; the two in one condition would read every job.
listed.id = ANY(ARRAY(
    SELECT job.id FROM holdfast.job AS job WHERE job.label = ANY(:labels::text[])
    UNION ALL SELECT below.id FROM unnest(:labels::text[]) AS chosen (label) CROSS JOIN LATERAL (
        SELECT id FROM holdfast.job WHERE label ~>=~ (chosen.label || '/') AND label ~<~ (chosen.label || '0')
        ORDER BY label USING ~<~ OFFSET 0) AS below))

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

-- name: only_done
-- Condition: done.
listed.state = 'done' AND listed.is_finished

-- name: only_dead
-- Condition: dead.
listed.state = 'dead' AND listed.is_finished

-- name: only_cancelled
-- Condition: cancelled.
listed.state = 'cancelled' AND listed.is_finished

-- name: get_own_job
-- Read a job that this login has enqueued, if it may read no others.
SELECT {job_columns} FROM holdfast.own_job(:id)
