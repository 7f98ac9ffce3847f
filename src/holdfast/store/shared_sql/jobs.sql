-- Jobs: enqueue, unique keys, steps, progress and events.

-- name: count_jobs_of_call
-- Count the jobs in a range of ids that a call with this nonce has enqueued: whether a call that is sent again is done.
SELECT count(*) FROM holdfast.job WHERE id BETWEEN :first::bigint AND :last::bigint AND nonce = :nonce::bigint

-- fragment: is_holder
-- The fence of one lease: no other run, and no other worker.
id = :id AND token = :token AND worker = :worker AND state = 'running'

-- name: lock_lease
-- Lock a running job's row while its holder enqueues children, so that the lease stays valid. As all writes of a
-- handler, it gives up soon on a row that a user's transaction has locked: it keeps a connection, and is sent again.
SELECT id FROM holdfast.live WHERE {brief_lock_wait} AND {is_holder}
FOR NO KEY UPDATE

-- name: claim_keys
-- Claim each unique key, or lock the row of the job that has it. Keys arrive sorted, so that enqueues cannot deadlock.
INSERT INTO holdfast.key AS existing (kind, key, job_id, scope, expires_at)
SELECT kind, key, job_id, scope, (SELECT holdfast.now()) + period
FROM jsonb_to_recordset(:requested::jsonb) AS requested (kind text, key text, job_id bigint, scope text,
    period interval) WHERE true
ON CONFLICT (kind, key) DO UPDATE SET job_id = existing.job_id
RETURNING kind, key, job_id, scope, expires_at, coalesce(expires_at <= (SELECT holdfast.now()), false) AS expired,
    previous_id

-- name: transfer_keys
-- Give keys that turned out to be free to their new jobs. The rows are locked by claim_keys.
INSERT INTO holdfast.key (kind, key, job_id, scope, expires_at)
SELECT kind, key, job_id, scope, (SELECT holdfast.now()) + period
FROM jsonb_to_recordset(:requested::jsonb) AS requested (kind text, key text, job_id bigint, scope text,
    period interval) WHERE true
ON CONFLICT (kind, key) DO UPDATE SET job_id = excluded.job_id, scope = excluded.scope,
    expires_at = excluded.expires_at, previous_id = NULL

-- name: pass_key
-- Give the key of a running job to the job that runs after it. The row is locked by claim_keys.
UPDATE holdfast.key SET job_id = :job_id, previous_id = :previous_id WHERE kind = :kind AND key = :key

-- name: restore_keys
-- Give retried jobs their keys back. The rows are locked by claim_keys.
INSERT INTO holdfast.key (kind, key, job_id, scope)
SELECT kind, key, job_id, 'live'
FROM jsonb_to_recordset(:requested::jsonb) AS requested (kind text, key text, job_id bigint) WHERE true
ON CONFLICT (kind, key) DO UPDATE SET job_id = excluded.job_id

-- name: list_steps
-- List the finished steps of a job. remaining is the rest of a sleep.
SELECT name, result::text, until - (SELECT holdfast.now()) AS remaining FROM holdfast.step WHERE job_id = :id

-- name: insert_step
-- Record a step of a running job. The first result wins.
WITH holder AS (
    SELECT id FROM holdfast.live WHERE {brief_lock_wait} AND {is_holder}
    FOR NO KEY UPDATE
)
INSERT INTO holdfast.step AS existing (job_id, name, result, until)
SELECT id, :name, :result::json, (SELECT holdfast.now()) + :delay::interval FROM holder WHERE true
ON CONFLICT (job_id, name) DO UPDATE SET result = existing.result
RETURNING name, result::text, until - (SELECT holdfast.now()) AS remaining

-- name: report_progress
-- Record the progress or checkpoint of a running job. NULL keeps the old value.
-- base is where the run began: at the progress of the run before, unless it counts from the beginning again.
WITH holder AS (
    SELECT id FROM holdfast.live WHERE {brief_lock_wait} AND {is_holder}
    FOR NO KEY UPDATE
)
INSERT INTO holdfast.progress AS existing (job_id, done, total, message, checkpoint, at, token, base)
SELECT id, :done::bigint, :total, :message, :checkpoint::json, (SELECT holdfast.now()),
    CASE WHEN :done::bigint IS NOT NULL THEN :token::bigint END, CASE WHEN :done::bigint IS NOT NULL THEN 0 END
FROM holder WHERE true
ON CONFLICT (job_id) DO UPDATE SET done = coalesce(excluded.done, existing.done),
    total = coalesce(excluded.total, existing.total), message = coalesce(excluded.message, existing.message),
    checkpoint = coalesce(excluded.checkpoint, existing.checkpoint), at = excluded.at,
    base = CASE WHEN excluded.token IS NULL OR excluded.token = existing.token THEN existing.base
        WHEN excluded.done >= existing.done THEN existing.done ELSE 0 END,
    token = coalesce(excluded.token, existing.token)
RETURNING job_id

-- name: insert_events
-- Append events to the history of jobs.
INSERT INTO holdfast.event (job_id, at, name, actor, detail)
SELECT job_id, (SELECT holdfast.now()), name, :actor, detail::json
FROM jsonb_to_recordset(:events::jsonb) AS event (job_id bigint, name text, detail text)

-- name: get_trace
-- Read the trace context that a job was enqueued with.
SELECT context FROM holdfast.trace WHERE job_id = :id
