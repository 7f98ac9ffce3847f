-- name: allocate_job_ids
-- Draw :count new job ids in the transaction of their jobs, or of the caller.
SELECT nextval('holdfast.job_id') FROM generate_series(1, :count)

-- name: draw_job_ids
-- Draw :count new job ids in a transaction of its own. Its commit does not wait for the disk: the commit of the jobs brings
-- both there. After a crash of the server, ids that no job has may be drawn again.
SELECT nextval('holdfast.job_id')
FROM generate_series(1, CASE set_config('synchronous_commit', 'off', true) WHEN 'off' THEN :count::integer END)

-- name: skip_job_ids
-- Draw past the ids that exist already, at most 100,000: after a restore or a failover the sequence may be behind.
SELECT max(nextval('holdfast.job_id')) FROM generate_series(1, least(100000,
    (SELECT max(id) FROM holdfast.job) - (SELECT nextval('holdfast.job_id'))))

-- name: limit_lock_waits
-- Limit the waits of this transaction for rows and keys that another transaction has locked.
SELECT set_config('lock_timeout', :longest, true)

-- name: list_live_ids
-- List which of these jobs are still live. A caller's transaction with an old snapshot is refused if one of them has
-- finished since: it would see that job as live.
SELECT id FROM holdfast.live WHERE id = ANY(:ids::bigint[]) AND (SELECT holdfast.refuse_old_snapshot(:ids::bigint[]))

-- name: insert_job
-- Enqueue one job that has neither key nor dependencies.
-- The id is allocated before, so that an enqueue sent again after a lost answer fails. A notification is delivered with
-- the commit, which fails if the queue of notifications is full: then workers poll. The commit waits for other notifying
-- ones, whatever the lock_timeout of the user is.
WITH inserted AS (
    INSERT INTO holdfast.job ({requested})
    VALUES (:id, :payload::json, holdfast.now(), {request})
    RETURNING id, created_at
)
{insert_live}
RETURNING CASE WHEN :notification::text IS NOT NULL AND pg_notification_queue_usage() < 0.9
    AND set_config('lock_timeout', '0', true) = '0'
    THEN pg_notify('holdfast.ready', :notification::text) END AS notified

-- name: insert_jobs
-- Enqueue jobs that have neither keys nor dependencies, and differ in their payloads alone: one in each line.
-- Half the cost of a COPY into both tables: only ids and payloads are read for each job.
WITH clock AS (SELECT holdfast.now() AS now),
inserted AS (
    INSERT INTO holdfast.job ({requested})
    SELECT new.id, new.payload::json, clock.now, {request}
    FROM clock, unnest(:ids::bigint[], string_to_array(:payloads, chr(10))) AS new (id, payload)
    RETURNING id, created_at
)
{insert_live}

-- fragment: requested
id, payload, created_at, kind, kind_version, label, tags, parent_id, actor, max_attempts, max_crashes, on_lost, retry,
    timeout, nonce

-- fragment: request
:kind, :kind_version, :label, :tags::json, :parent_id, :actor, :max_attempts, :max_crashes, :on_lost, :retry::json,
    :timeout, :nonce

-- fragment: insert_live
INSERT INTO holdfast.live (id, state, queue, kind, kind_version, priority, due_at, no_prefetch)
SELECT inserted.id,
    CASE WHEN :hold THEN 'held' WHEN due.at > created_at THEN 'scheduled' ELSE 'ready' END,
    :queue, :kind, :kind_version, :priority, due.at, :no_prefetch
FROM inserted,
    LATERAL (SELECT coalesce(:run_at::timestamptz, created_at + :delay::interval, created_at) AS at) AS due

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
