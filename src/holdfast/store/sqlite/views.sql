-- What people see, on SQLite. Lists and verbs share the conditions at the end: {where} stands
-- for those that a selector asks for.

-- name: list_jobs
-- A page of each view, then the newest of both: an order over the two at once would sort them all.
WITH page AS (
    SELECT * FROM (SELECT seen.* FROM holdfast_live_view AS seen WHERE {where} ORDER BY seen.id DESC LIMIT :limit)
    UNION ALL
    SELECT * FROM (SELECT seen.* FROM holdfast_finished_view AS seen WHERE {where} ORDER BY seen.id DESC LIMIT :limit)
    ORDER BY id DESC LIMIT :limit
)
SELECT id, kind, queue, state, priority, due_at, label, tags, key, payload, parent_id, actor, created_at, attempts,
    max_attempts, crashes, max_crashes, on_lost, retry, after_when, after_failed, token, poison_suspect, requested,
    worker, claimed_at, started_at, lease_expires_at, note, finished_at, reason, error, result, progress_done, progress_total,
    progress_message, checkpoint
FROM page ORDER BY id DESC

-- name: list_jobs_brief
-- The same for a list that people look at: without what may be large. The payload comes along only to find its
-- secrets in the error, which is left out where that would take too much.
WITH page AS (
    SELECT * FROM (SELECT seen.* FROM holdfast_live_view AS seen WHERE {where} ORDER BY seen.id DESC LIMIT :limit)
    UNION ALL
    SELECT * FROM (SELECT seen.* FROM holdfast_finished_view AS seen WHERE {where} ORDER BY seen.id DESC LIMIT :limit)
    ORDER BY id DESC LIMIT :limit
)
SELECT id, kind, queue, state, priority, due_at, label, tags, key,
    CASE WHEN error IS NULL OR length(payload) > 16384 THEN '{}' ELSE payload END AS payload, parent_id, actor, created_at, attempts,
    max_attempts, crashes, max_crashes, on_lost, retry, after_when, after_failed, token, poison_suspect, requested,
    worker, claimed_at, started_at, lease_expires_at, note, finished_at, reason,
    CASE WHEN length(payload) <= 16384 THEN substr(error, 1, 300) END AS error, NULL AS result, progress_done, progress_total,
    progress_message, NULL AS checkpoint
FROM page ORDER BY id DESC

-- name: list_job_ids
WITH page AS (
    SELECT * FROM (SELECT seen.id FROM holdfast_live_view AS seen WHERE {where} ORDER BY seen.id LIMIT :limit)
    UNION ALL
    SELECT * FROM (SELECT seen.id FROM holdfast_finished_view AS seen WHERE {where} ORDER BY seen.id LIMIT :limit)
    ORDER BY id LIMIT :limit
)
SELECT id FROM page ORDER BY id

-- name: count_jobs
WITH page AS (
    SELECT * FROM (SELECT seen.id FROM holdfast_live_view AS seen WHERE {where} ORDER BY seen.id DESC LIMIT :limit)
    UNION ALL
    SELECT * FROM (SELECT seen.id FROM holdfast_finished_view AS seen WHERE {where} ORDER BY seen.id DESC LIMIT :limit)
    ORDER BY id DESC LIMIT :limit
)
SELECT count(*) FROM page

-- name: get_job_state
SELECT state FROM holdfast_live WHERE id = :id UNION ALL SELECT state FROM holdfast_finished WHERE id = :id

-- name: get_job_key
SELECT key FROM holdfast_key WHERE job_id = :id

-- name: list_attempts
SELECT attempt.number, attempt.token, attempt.worker, worker.host, worker.pid, worker.version, attempt.started_at,
    attempt.finished_at, attempt.reason, attempt.exit_code, attempt.error
FROM holdfast_attempt AS attempt LEFT JOIN holdfast_worker AS worker ON worker.id = attempt.worker
WHERE attempt.job_id = :id ORDER BY attempt.token

-- name: get_worker_host
SELECT host, pid, version FROM holdfast_worker WHERE id = :id

-- name: list_events
SELECT at, name, actor, detail FROM holdfast_event WHERE job_id = :id ORDER BY id

-- name: count_jobs_ahead
SELECT count(*) FROM (
    SELECT 1 FROM holdfast_live
    WHERE state = 'ready' AND queue = :queue AND kind = :kind
        AND (priority > :priority OR priority = :priority AND (due_at, id) < (:due_at, :id))
    LIMIT 1000)

-- name: by_ids
seen.id IN (SELECT value FROM json_each(:ids))

-- name: by_keys
seen.id IN (SELECT job.id FROM holdfast_job AS job WHERE job.key IN (SELECT value FROM json_each(:keys)))

-- name: by_labels
seen.id IN (SELECT job.id FROM holdfast_job AS job WHERE job.label IN (SELECT value FROM json_each(:labels)))

-- name: like_labels
EXISTS (SELECT 1 FROM json_each(:labels) AS requested WHERE seen.label GLOB requested.value)

-- name: by_tags
EXISTS (SELECT 1 FROM json_each(seen.tags) AS tag WHERE tag.value IN (SELECT value FROM json_each(:tags)))

-- name: like_queues
EXISTS (SELECT 1 FROM json_each(:queues) AS requested WHERE seen.queue GLOB requested.value)

-- name: like_kinds
EXISTS (SELECT 1 FROM json_each(:kinds) AS requested WHERE seen.kind GLOB requested.value)

-- name: by_states
seen.state IN (SELECT value FROM json_each(:states))

-- name: by_error
instr(lower(seen.error), lower(:error)) > 0

-- name: since
seen.created_at >= :since

-- name: until
seen.created_at < :until

-- name: before
seen.id < :before

-- name: after
seen.id > :after

-- One state is a constant, so that the planner can use the index that is made for it, and reads no
-- more than one of the two views.

-- name: only_held
seen.state = 'held' AND NOT seen.is_finished

-- name: only_waiting
seen.state = 'waiting' AND NOT seen.is_finished

-- name: only_scheduled
seen.state = 'scheduled' AND NOT seen.is_finished

-- name: only_ready
seen.state = 'ready' AND NOT seen.is_finished

-- name: only_running
seen.id IN (SELECT live.id FROM holdfast_live AS live WHERE live.lease_expires_at IS NOT NULL) AND NOT seen.is_finished

-- name: only_done
+seen.state = 'done' AND seen.is_finished

-- name: only_dead
seen.state = 'dead' AND seen.state <> 'done' AND seen.is_finished

-- name: only_cancelled
seen.state = 'cancelled' AND seen.state <> 'done' AND seen.is_finished
