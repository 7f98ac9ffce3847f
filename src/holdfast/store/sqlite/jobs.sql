-- name: allocate_job_ids
-- Draw :count new job ids.
UPDATE holdfast_meta SET last_job_id = last_job_id + :count;
SELECT last_job_id - :count + 1 FROM holdfast_meta

-- name: skip_job_ids
-- Draw past the ids that exist already. The counter is in the same database as the jobs, so it is never behind.
SELECT last_job_id FROM holdfast_meta

-- name: limit_lock_waits
-- Nothing to limit: a transaction has the only write lock.
SELECT :longest

-- name: list_live_ids
-- List which of these jobs are still live. A transaction that has written sees the newest rows.
SELECT id FROM holdfast_live WHERE id IN (SELECT value FROM json_each(:ids))

-- name: insert_job
-- Enqueue one job that has neither key nor dependencies, and draw its id if there is none.
UPDATE holdfast_meta SET last_job_id = last_job_id + 1 WHERE :id IS NULL;
INSERT INTO holdfast_job (id, kind, kind_version, payload, label, tags, parent_id, actor, created_at,
    max_attempts, max_crashes, on_lost, retry, timeout, nonce)
VALUES (coalesce(:id, (SELECT last_job_id FROM holdfast_meta)), :kind, :kind_version, :payload, :label, :tags, :parent_id,
    :actor, :now, :max_attempts, :max_crashes, :on_lost, :retry, :timeout, :nonce);
INSERT INTO holdfast_live (id, state, queue, kind, kind_version, priority, due_at, no_prefetch)
SELECT coalesce(:id, (SELECT last_job_id FROM holdfast_meta)),
    CASE WHEN :hold THEN 'held' WHEN due.at > :now THEN 'scheduled' ELSE 'ready' END,
    :queue, :kind, :kind_version, :priority, due.at, :no_prefetch
FROM (SELECT coalesce(:run_at, :now + :delay, :now) AS at) AS due RETURNING id

-- name: replace_job
-- Replace the payload and options of a job that is not running, and delete its progress and steps. A job that no worker
-- could read is tried again.
UPDATE holdfast_job SET payload = :payload, kind_version = :kind_version, label = :label, tags = :tags
WHERE id = (SELECT id FROM holdfast_live WHERE id = :id AND state <> 'running');
DELETE FROM holdfast_progress
WHERE job_id = (SELECT id FROM holdfast_live WHERE id = :id AND state <> 'running');
DELETE FROM holdfast_step
WHERE job_id = (SELECT id FROM holdfast_live WHERE id = :id AND state <> 'running');
UPDATE holdfast_live SET priority = :priority, due_at = coalesce(:run_at, :now + :delay, :now), token = token + 1,
    kind_version = :kind_version, reader = '', refusals = NULL, state = CASE
    WHEN state IN ('held', 'waiting') AND NOT {unreadable} THEN state
    WHEN coalesce(:run_at, :now + :delay, :now) > :now THEN 'scheduled' ELSE 'ready' END
WHERE id = :id AND state <> 'running' RETURNING id
