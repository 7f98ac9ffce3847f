-- Enqueueing on SQLite. Tables of parameters arrive as JSON: an array of objects.

-- name: allocate_job_ids
-- Drawn in the enqueue's own transaction: a local COMMIT always answers.
UPDATE holdfast_meta SET last_job_id = last_job_id + :count;
SELECT last_job_id - :count + 1 FROM holdfast_meta

-- name: read_now
SELECT :now

-- name: read_installation
SELECT installation FROM holdfast_meta

-- name: insert_job
-- One job without key or dependencies.
INSERT INTO holdfast_job (id, kind, payload, label, tags, parent_id, actor, created_at,
    max_attempts, max_crashes, on_lost, retry)
VALUES (:id, :kind, :payload, :label, :tags, :parent_id, :actor, :now, :max_attempts, :max_crashes, :on_lost, :retry);
INSERT INTO holdfast_live (id, state, queue, kind, priority, due_at, no_prefetch)
SELECT :id, CASE WHEN :hold THEN 'held' WHEN due.at > :now THEN 'scheduled' ELSE 'ready' END,
    :queue, :kind, :priority, due.at, :no_prefetch
FROM (SELECT coalesce(:run_at, :now + :delay, :now) AS at) AS due
RETURNING id

-- name: get_job_request
SELECT kind, payload, actor FROM holdfast_job WHERE id = :id

-- name: lock_lease
-- A running job may enqueue children while it holds its lease.
SELECT id FROM holdfast_live WHERE id = :id AND token = :token AND state = 'running'

-- name: claim_keys
-- Take every key, or tell by whom it is taken.
INSERT INTO holdfast_key (kind, key, job_id, scope, expires_at)
SELECT requested.value->>'kind', requested.value->>'key', requested.value->>'job_id', requested.value->>'scope', :now + (requested.value->>'period')
FROM json_each(:requested) AS requested WHERE true
ON CONFLICT (kind, key) DO UPDATE SET job_id = job_id
RETURNING kind, key, job_id, scope, expires_at, coalesce(expires_at <= :now, 0) AS expired

-- name: transfer_keys
-- Hand keys that turned out to be free to their new jobs.
INSERT INTO holdfast_key (kind, key, job_id, scope, expires_at)
SELECT requested.value->>'kind', requested.value->>'key', requested.value->>'job_id', requested.value->>'scope',
    :now + (requested.value->>'period')
FROM json_each(:requested) AS requested WHERE true
ON CONFLICT (kind, key) DO UPDATE SET job_id = excluded.job_id, scope = excluded.scope, expires_at = excluded.expires_at

-- name: list_live_ids
SELECT id FROM holdfast_live WHERE id IN (SELECT value FROM json_each(:ids))

-- name: replace_job
-- Only a job that nobody runs can be replaced. What the old one had reached is forgotten.
UPDATE holdfast_job SET payload = :payload, label = :label, tags = :tags
WHERE id = (SELECT id FROM holdfast_live WHERE id = :id AND state <> 'running');
DELETE FROM holdfast_progress
WHERE job_id = (SELECT id FROM holdfast_live WHERE id = :id AND state <> 'running');
UPDATE holdfast_live SET priority = :priority, due_at = coalesce(:run_at, :now + :delay, :now), token = token + 1,
    state = CASE
    WHEN state IN ('held', 'waiting') THEN state
    WHEN coalesce(:run_at, :now + :delay, :now) > :now THEN 'scheduled' ELSE 'ready' END
WHERE id = :id AND state <> 'running'
RETURNING id
