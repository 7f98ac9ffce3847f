-- Enqueueing on PostgreSQL.

-- name: allocate_job_ids
SELECT nextval('holdfast.job_id') FROM generate_series(1, :count)

-- name: read_now
SELECT holdfast.now()

-- name: read_installation
SELECT installation::text FROM holdfast.meta

-- name: insert_job
-- One job without key or dependencies. Sent again after a lost answer, it changes nothing.
WITH clock AS (SELECT holdfast.now() AS now),
asked AS (
    INSERT INTO holdfast.job (id, kind, payload, label, tags, parent_id, actor, created_at,
        max_attempts, max_crashes, on_lost, retry)
    SELECT :id, :kind, :payload::json, :label, :tags::json, :parent_id, :actor, clock.now,
        :max_attempts, :max_crashes, :on_lost, :retry::json
    FROM clock
    ON CONFLICT (id) DO NOTHING
    RETURNING id
)
INSERT INTO holdfast.live (id, state, queue, kind, priority, due_at, no_prefetch)
SELECT asked.id,
    CASE WHEN :hold THEN 'held' WHEN due.at > clock.now THEN 'scheduled' ELSE 'ready' END,
    :queue, :kind, :priority, due.at, :no_prefetch
FROM asked, clock, LATERAL (SELECT coalesce(:run_at::timestamptz, clock.now + :delay::interval, clock.now) AS at) AS due
RETURNING id

-- name: get_job_request
SELECT kind, payload::text, actor FROM holdfast.job WHERE id = :id

-- name: lock_lease
-- A running job may enqueue children while it holds its lease; the lock keeps it that way.
SELECT id FROM holdfast.live WHERE id = :id AND token = :token AND state = 'running' FOR NO KEY UPDATE

-- name: claim_keys
-- Take every key, or lock it where it is taken and tell by whom. Keys come sorted.
INSERT INTO holdfast.key AS taken (kind, key, job_id, scope, expires_at)
SELECT kind, key, job_id, scope, (SELECT holdfast.now()) + period
FROM jsonb_to_recordset(:requested::jsonb) AS requested (kind text, key text, job_id bigint, scope text, period interval)
ON CONFLICT (kind, key) DO UPDATE SET job_id = taken.job_id
RETURNING kind, key, job_id, scope, expires_at, coalesce(expires_at <= (SELECT holdfast.now()), false) AS expired

-- name: transfer_keys
-- Hand keys that turned out to be free to their new jobs; their rows are locked.
INSERT INTO holdfast.key AS taken (kind, key, job_id, scope, expires_at)
SELECT kind, key, job_id, scope, (SELECT holdfast.now()) + period
FROM jsonb_to_recordset(:requested::jsonb) AS requested (kind text, key text, job_id bigint, scope text, period interval)
ON CONFLICT (kind, key) DO UPDATE SET job_id = excluded.job_id, scope = excluded.scope, expires_at = excluded.expires_at

-- name: list_live_ids
SELECT id FROM holdfast.live WHERE id = ANY(:ids::bigint[])

-- name: replace_job
-- Only a job that nobody runs can be replaced. What the old one had reached is forgotten. The token rises: a claim that
-- has begun already reads the payload anew.
WITH clock AS (SELECT holdfast.now() AS now),
moved AS (
    UPDATE holdfast.live SET priority = :priority, due_at = due.at, token = token + 1, state = CASE
        WHEN state IN ('held', 'waiting') THEN state WHEN due.at > clock.now THEN 'scheduled' ELSE 'ready' END
    FROM clock, LATERAL (SELECT coalesce(:run_at::timestamptz, clock.now + :delay::interval, clock.now) AS at) AS due
    WHERE live.id = :id AND live.state <> 'running'
    RETURNING live.id
), forgotten AS (
    DELETE FROM holdfast.progress USING moved WHERE progress.job_id = moved.id
)
UPDATE holdfast.job SET payload = :payload::json, label = :label, tags = :tags::json
FROM moved WHERE job.id = moved.id
RETURNING job.id
