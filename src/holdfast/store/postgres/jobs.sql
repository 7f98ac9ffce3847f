-- name: allocate_job_ids
-- Draw :count consecutive job ids in the transaction of their jobs, or of the caller, and return the first.
SELECT holdfast.draw_job_ids(:count::integer)

-- name: draw_job_ids
-- Draw :count consecutive job ids in a transaction of its own, and return the first. Its commit does not wait for the
-- disk: the commit of the jobs brings both there. After a crash of the server, ids that no job has may be drawn again.
SELECT CASE set_config('synchronous_commit', 'off', true) WHEN 'off' THEN holdfast.draw_job_ids(:count::integer) END

-- name: skip_job_ids
-- Draw past the ids that exist already, at most 100,000: after a restore or a failover the sequence may be behind.
SELECT holdfast.draw_job_ids(least(100000, greatest((SELECT max(id) FROM holdfast.job), (SELECT max(id) FROM holdfast.live))
    - holdfast.draw_job_ids(1))::integer)

-- name: limit_lock_waits
-- Limit the waits of this transaction for rows and keys that another transaction has locked.
SELECT set_config('lock_timeout', :longest, true)

-- name: list_live_ids
-- List which of these jobs are still live. A caller's transaction with an old snapshot is refused if one of them has
-- finished since: it would see that job as live.
SELECT id FROM holdfast.live WHERE id = ANY(:ids::bigint[]) AND (SELECT holdfast.refuse_old_snapshot(:ids::bigint[]))

-- name: insert_job
-- Enqueue one job that has neither key nor dependencies.
-- The id is allocated before, so that an enqueue sent again after a lost answer fails.
WITH inserted AS (
    INSERT INTO holdfast.job ({requested})
    VALUES (:id, :payload::json, holdfast.now(), {request})
    RETURNING id, created_at
)
INSERT INTO holdfast.live ({new_live})
SELECT id, {first_state}, :queue, :kind, :kind_version, :priority, due.at, :no_prefetch
FROM inserted, LATERAL (SELECT {first_due_at} AS at) AS due
RETURNING {notify}

-- name: insert_jobs
-- Enqueue jobs that have neither keys nor dependencies, and differ in their payloads alone: one in each line. Their ids
-- are consecutive. What they have in common is calculated once, domains are checked once, and no row of "job" is kept for
-- "live". For one job this form takes longer.
WITH clock AS (SELECT holdfast.now() AS created_at, {notify}),
due AS (SELECT created_at, {first_due_at}::holdfast.due_time AS at FROM clock),
inserted AS (
    INSERT INTO holdfast.job ({requested})
    SELECT generate_series(:first_id::bigint, :last_id::bigint), unnest(string_to_array(:payloads, chr(10)))::json,
        (SELECT created_at FROM due), {request}
)
INSERT INTO holdfast.live ({new_live})
SELECT generate_series(:first_id::bigint, :last_id::bigint), (SELECT {first_state} FROM due), :queue, :kind,
    :kind_version, :priority, (SELECT at FROM due), :no_prefetch

-- fragment: requested
id, payload, created_at, kind, kind_version, label, tags, parent_id, actor, max_attempts, max_crashes, on_lost, retry,
    timeout, nonce

-- fragment: request
:kind, :kind_version, :label, :tags::json, :parent_id, :actor, :max_attempts, :max_crashes, :on_lost, :retry::json,
    :timeout, :nonce

-- fragment: notify
-- Notify workers, unless :notification is NULL. It is delivered with the commit, which fails if the queue of notifications
-- is full: then workers poll. The commit waits for other notifying ones, whatever the lock_timeout of the user is.
CASE WHEN :notification::text IS NOT NULL AND pg_notification_queue_usage() < 0.9
    AND set_config('lock_timeout', '0', true) = '0'
    THEN pg_notify('holdfast.ready', :notification::text) END AS notified

-- fragment: new_live
id, state, queue, kind, kind_version, priority, due_at, no_prefetch

-- fragment: first_due_at
coalesce(:run_at::timestamptz, created_at + :delay::interval, created_at)

-- fragment: first_state
CASE WHEN :hold THEN 'held' WHEN due.at > created_at THEN 'scheduled' ELSE 'ready' END

-- name: replace_job
-- Replace the payload and options of a job that is not running, and delete its progress and steps.
-- The token rises, so that a running claim reads the new payload. A job that no worker could read is tried again.
WITH clock AS (SELECT holdfast.now() AS now),
changed AS (
    UPDATE holdfast.live SET priority = :priority, due_at = due.at, token = token + 1, kind_version = :kind_version,
        reader = '', refusals = NULL, state = CASE
        WHEN state IN ('held', 'waiting') AND NOT {unreadable} THEN state WHEN due.at > clock.now THEN 'scheduled' ELSE 'ready' END
    FROM clock, LATERAL (SELECT coalesce(:run_at::timestamptz, clock.now + :delay::interval, clock.now) AS at) AS due
    WHERE live.id = :id AND live.state <> 'running' RETURNING live.id
), deleted_progress AS (
    DELETE FROM holdfast.progress USING changed WHERE progress.job_id = changed.id
), deleted_steps AS (
    DELETE FROM holdfast.step USING changed WHERE step.job_id = changed.id
)
UPDATE holdfast.job SET payload = :payload::json, kind_version = :kind_version, label = :label, tags = :tags::json
FROM changed WHERE job.id = changed.id RETURNING job.id
