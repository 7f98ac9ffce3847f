-- What people see, on PostgreSQL. Lists and verbs share the conditions at the end: {where} stands
-- for those that a selector asks for.

-- name: list_jobs
-- A page of each view, then the newest of both: an order over the two at once would sort them all.
WITH page AS (
    (SELECT seen.* FROM holdfast.live_view AS seen WHERE {where} ORDER BY seen.id DESC LIMIT :limit::bigint)
    UNION ALL
    (SELECT seen.* FROM holdfast.finished_view AS seen WHERE {where} ORDER BY seen.id DESC LIMIT :limit::bigint)
    ORDER BY id DESC LIMIT :limit::bigint
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
    (SELECT seen.* FROM holdfast.live_view AS seen WHERE {where} ORDER BY seen.id DESC LIMIT :limit::bigint)
    UNION ALL
    (SELECT seen.* FROM holdfast.finished_view AS seen WHERE {where} ORDER BY seen.id DESC LIMIT :limit::bigint)
    ORDER BY id DESC LIMIT :limit::bigint
)
SELECT id, kind, queue, state, priority, due_at, label, tags, key,
    CASE WHEN error IS NULL OR length(payload) > 16384 THEN '{}' ELSE payload END AS payload, parent_id, actor, created_at, attempts,
    max_attempts, crashes, max_crashes, on_lost, retry, after_when, after_failed, token, poison_suspect, requested,
    worker, claimed_at, started_at, lease_expires_at, note, finished_at, reason,
    CASE WHEN length(payload) <= 16384 THEN left(error, 300) END AS error, NULL AS result, progress_done, progress_total,
    progress_message, NULL AS checkpoint
FROM page ORDER BY id DESC

-- name: list_job_ids
WITH page AS (
    (SELECT seen.id FROM holdfast.live_view AS seen WHERE {where} ORDER BY seen.id LIMIT :limit::bigint)
    UNION ALL
    (SELECT seen.id FROM holdfast.finished_view AS seen WHERE {where} ORDER BY seen.id LIMIT :limit::bigint)
    ORDER BY id LIMIT :limit::bigint
)
SELECT id FROM page ORDER BY id

-- name: count_jobs
WITH page AS (
    (SELECT seen.id FROM holdfast.live_view AS seen WHERE {where} ORDER BY seen.id DESC LIMIT :limit::bigint)
    UNION ALL
    (SELECT seen.id FROM holdfast.finished_view AS seen WHERE {where} ORDER BY seen.id DESC LIMIT :limit::bigint)
    ORDER BY id DESC LIMIT :limit::bigint
)
SELECT count(*) FROM page

-- name: get_job_state
SELECT state FROM holdfast.live WHERE id = :id UNION ALL SELECT state FROM holdfast.finished WHERE id = :id

-- name: get_job_key
SELECT key FROM holdfast.key WHERE job_id = :id

-- name: list_attempts
SELECT attempt.number, attempt.token, attempt.worker, worker.host, worker.pid, worker.version, attempt.started_at,
    attempt.finished_at, attempt.reason, attempt.exit_code, attempt.error
FROM holdfast.attempt LEFT JOIN holdfast.worker ON worker.id = attempt.worker
WHERE attempt.job_id = :id ORDER BY attempt.token

-- name: get_worker_host
SELECT host, pid, version FROM holdfast.worker WHERE id = :id

-- name: list_events
SELECT at, name, actor, detail::text FROM holdfast.event WHERE job_id = :id ORDER BY id

-- name: count_jobs_ahead
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

-- name: by_ids
seen.id = ANY(:ids::bigint[])

-- name: by_keys
seen.id = ANY(ARRAY(SELECT job.id FROM holdfast.job WHERE job.key = ANY(:keys::text[])))

-- name: by_labels
seen.id = ANY(ARRAY(SELECT job.id FROM holdfast.job WHERE job.label = ANY(:labels::text[])))

-- name: like_labels
seen.label LIKE ANY(:labels::text[])

-- name: by_tags
seen.tags::jsonb ?| :tags::text[]

-- name: like_queues
seen.queue LIKE ANY(:queues::text[])

-- name: like_kinds
seen.kind LIKE ANY(:kinds::text[])

-- name: by_states
seen.state = ANY(:states::text[])

-- name: by_error
position(lower(:error) IN lower(seen.error)) > 0

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
seen.id = ANY(ARRAY(
    SELECT live.id FROM holdfast.live WHERE live.lease_expires_at IS NOT NULL ORDER BY live.queue, live.lease_expires_at)) AND NOT seen.is_finished

-- name: only_done
seen.state = 'done' AND seen.is_finished

-- name: only_dead
seen.state = 'dead' AND seen.is_finished

-- name: only_cancelled
seen.state = 'cancelled' AND seen.is_finished
