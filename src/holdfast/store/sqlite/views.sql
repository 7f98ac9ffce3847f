-- What people see, on SQLite. Lists and verbs share the conditions at the end: {where} stands
-- for those that a selector asks for.

-- name: select_jobs
SELECT seen.id, seen.kind, seen.queue, seen.state, seen.priority, seen.due_at, seen.label, seen.tags, seen.key,
    seen.payload, seen.parent_id, seen.actor, seen.created_at, seen.attempts, seen.max_attempts, seen.crashes,
    seen.max_crashes, seen.on_lost, seen.retry, seen.after_when, seen.after_failed, seen.token, seen.suspect,
    seen.cancel_wanted, seen.worker, seen.claimed_at, seen.started_at, seen.lapses_at, seen.note, seen.ended_at,
    seen.reason, seen.error, seen.result, told.done AS progress_done, told.total AS progress_total,
    told.message AS progress_message, told.checkpoint
FROM holdfast_job_view AS seen LEFT JOIN holdfast_progress AS told ON told.job_id = seen.id
WHERE {where}
ORDER BY seen.id DESC LIMIT :limit

-- name: select_ids
SELECT seen.id FROM holdfast_job_view AS seen WHERE {where} ORDER BY seen.id LIMIT :limit

-- name: count_jobs
SELECT count(*) FROM (SELECT 1 FROM holdfast_job_view AS seen WHERE {where} LIMIT :limit)

-- name: state_of
SELECT state FROM holdfast_live WHERE id = :id UNION ALL SELECT state FROM holdfast_ended WHERE id = :id

-- name: key_of
SELECT key FROM holdfast_key WHERE job_id = :id

-- name: attempts_of
SELECT attempt.number, attempt.token, attempt.worker, worker.host, worker.pid, worker.version, attempt.started_at,
    attempt.ended_at, attempt.reason, attempt.exit_code, attempt.error
FROM holdfast_attempt AS attempt LEFT JOIN holdfast_worker AS worker ON worker.id = attempt.worker
WHERE attempt.job_id = :id ORDER BY attempt.token

-- name: worker_facts
SELECT host, pid, version FROM holdfast_worker WHERE id = :id

-- name: events_of
SELECT at, name, actor, detail FROM holdfast_event WHERE job_id = :id ORDER BY id

-- name: count_ahead
SELECT count(*) FROM (
    SELECT 1 FROM holdfast_live
    WHERE state = 'ready' AND queue = :queue AND kind = :kind
        AND (priority > :priority OR priority = :priority AND (due_at, id) < (:due_at, :id))
    LIMIT 1000)

-- name: by_ids
seen.id IN (SELECT value FROM json_each(:ids))

-- name: by_keys
seen.key IN (SELECT value FROM json_each(:keys))

-- name: by_labels
seen.label IN (SELECT value FROM json_each(:labels))

-- name: like_labels
EXISTS (SELECT 1 FROM json_each(:labels) AS wanted WHERE seen.label GLOB wanted.value)

-- name: like_queues
EXISTS (SELECT 1 FROM json_each(:queues) AS wanted WHERE seen.queue GLOB wanted.value)

-- name: like_kinds
EXISTS (SELECT 1 FROM json_each(:kinds) AS wanted WHERE seen.kind GLOB wanted.value)

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
