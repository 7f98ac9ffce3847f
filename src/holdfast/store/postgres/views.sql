-- What people see, on PostgreSQL. Lists and verbs share the conditions at the end: {where} stands
-- for those that a selector asks for.

-- name: select_jobs
SELECT seen.id, seen.kind, seen.queue, seen.state, seen.priority, seen.due_at, seen.label, seen.tags::text, seen.key,
    seen.payload::text, seen.parent_id, seen.actor, seen.created_at, seen.attempts, seen.max_attempts,
    seen.crashes, seen.max_crashes, seen.on_lost, seen.retry::text, seen.after_when, seen.after_failed, seen.token,
    seen.suspect, seen.cancel_wanted, seen.worker, seen.claimed_at, seen.started_at, seen.lapses_at, seen.note,
    seen.ended_at, seen.reason, seen.error, seen.result::text, told.done AS progress_done,
    told.total AS progress_total, told.message AS progress_message, told.checkpoint::text
FROM holdfast.job_view AS seen LEFT JOIN holdfast.progress AS told ON told.job_id = seen.id
WHERE {where}
ORDER BY seen.id DESC LIMIT :limit::bigint

-- name: select_ids
SELECT seen.id FROM holdfast.job_view AS seen WHERE {where} ORDER BY seen.id LIMIT :limit::bigint

-- name: count_jobs
SELECT count(*) FROM (SELECT 1 FROM holdfast.job_view AS seen WHERE {where} LIMIT :limit::bigint) AS capped

-- name: state_of
SELECT state FROM holdfast.live WHERE id = :id UNION ALL SELECT state FROM holdfast.ended WHERE id = :id

-- name: key_of
SELECT key FROM holdfast.key WHERE job_id = :id

-- name: attempts_of
SELECT attempt.number, attempt.token, attempt.worker, worker.host, worker.pid, worker.version, attempt.started_at,
    attempt.ended_at, attempt.reason, attempt.exit_code, attempt.error
FROM holdfast.attempt LEFT JOIN holdfast.worker ON worker.id = attempt.worker
WHERE attempt.job_id = :id ORDER BY attempt.token

-- name: worker_facts
SELECT host, pid, version FROM holdfast.worker WHERE id = :id

-- name: events_of
SELECT at, name, actor, detail::text FROM holdfast.event WHERE job_id = :id ORDER BY id

-- name: count_ahead
SELECT count(*) FROM (
    SELECT 1 FROM holdfast.live
    WHERE state = 'ready' AND queue = :queue AND kind = :kind
        AND (priority > :priority OR priority = :priority AND (due_at, id) < (:due_at::timestamptz, :id::bigint))
    LIMIT 1000) AS capped

-- name: by_ids
seen.id = ANY(:ids::bigint[])

-- name: by_keys
seen.key = ANY(:keys::text[])

-- name: by_labels
seen.label = ANY(:labels::text[])

-- name: like_labels
seen.label LIKE ANY(:labels::text[])

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

-- One state is a constant, so that the planner can use the index that is made for it.

-- name: only_held
seen.state = 'held'

-- name: only_waiting
seen.state = 'waiting'

-- name: only_scheduled
seen.state = 'scheduled'

-- name: only_ready
seen.state = 'ready'

-- name: only_running
seen.state = 'running'

-- name: only_done
seen.state = 'done'

-- name: only_dead
seen.state = 'dead'

-- name: only_cancelled
seen.state = 'cancelled'
