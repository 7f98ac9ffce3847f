-- name: maintain_ranges
-- Begin and drop ranges of finished jobs as far as they are due. Returns the ids of the ranges that wait to be dropped.
SELECT first_id, greatest(first_id, next_id) AS next_id
FROM holdfast.maintain_ranges(:age::interval, :width::bigint, :most::bigint)

-- fragment: not_expired
-- The condition on a request whose outcome was not dropped with its range.
(NOT EXISTS (SELECT FROM holdfast.expired_range WHERE job.id >= first_id AND job.id < next_id)
        OR EXISTS (SELECT FROM holdfast.live WHERE live.id = job.id OFFSET 0)
        OR EXISTS (SELECT FROM holdfast.finished WHERE finished.id = job.id OFFSET 0))

-- name: prune_requests
-- Delete the next requests whose outcomes were dropped with their range.
SELECT id FROM holdfast.delete_expired_requests(10 * :limit::integer) AS deleted (id) WHERE :age::interval > '0'

-- name: lock_expired_jobs
-- Lock finished jobs past their age, except dependencies of live jobs. SKIP LOCKED leaves out those that a transaction
-- has named as dependencies of its jobs.
-- planner: OFFSET 0 and the scalar subquery keep one index lookup per row; a join reads the whole dependency table.
SELECT id FROM holdfast.finished
WHERE {lock_wait} AND state = :state AND id >= :first::bigint AND id < :next::bigint
    AND finished_at < (SELECT holdfast.now()) - :age::interval AND NOT EXISTS (
    SELECT FROM holdfast.dependency
    WHERE dependency.dependency_id = finished.id AND (SELECT true FROM holdfast.live WHERE live.id = dependency.job_id)
    OFFSET 0)
ORDER BY finished_at, id LIMIT :limit::bigint
FOR UPDATE SKIP LOCKED

-- name: list_live_dependents
-- List which of these jobs are dependencies of live jobs outside the list.
SELECT DISTINCT dependency_id FROM holdfast.dependency
WHERE dependency_id = ANY(:ids::bigint[]) AND job_id <> ALL(:ids::bigint[])
    AND (SELECT true FROM holdfast.live WHERE live.id = dependency.job_id)

-- name: list_locked_keys
-- List which of these jobs have a key that another transaction has locked.
SELECT job_id FROM holdfast.key
WHERE job_id = ANY(:ids::bigint[]) AND ctid <> ALL(ARRAY(
    SELECT ctid FROM holdfast.key WHERE job_id = ANY(:ids::bigint[]) FOR UPDATE SKIP LOCKED))

-- name: prune_keys
-- Delete keys whose period has passed, except those of live jobs.
-- planner: OFFSET 0 as in lock_expired_jobs.
DELETE FROM holdfast.key
WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM holdfast.key WHERE expires_at <= (SELECT holdfast.now())
        AND NOT EXISTS (SELECT FROM holdfast.live WHERE live.id = job_id OFFSET 0)
        AND NOT EXISTS (SELECT FROM holdfast.live WHERE live.id = previous_id OFFSET 0)
    ORDER BY expires_at LIMIT :limit::bigint FOR UPDATE SKIP LOCKED)) RETURNING key

-- name: prune_plans
-- Delete old plans, except those of live jobs.
-- planner: count(*) = 0 is not turned into a join, so that only :limit plans are read.
WITH expired AS (
    SELECT schedule, time, scope FROM holdfast.plan
    WHERE decided_at < (SELECT holdfast.now()) - :age
        AND (SELECT count(*) FROM holdfast.live WHERE live.id = plan.job_id) = 0
    LIMIT :limit::bigint
)
DELETE FROM holdfast.plan USING expired
WHERE plan.schedule = expired.schedule AND plan.time = expired.time AND plan.scope = expired.scope
RETURNING plan.job_id

-- name: prune_skipped_plans
-- Delete old records of skipped plans.
WITH expired AS (
    SELECT schedule, last, first, scope, reason FROM holdfast.skipped_plan
    WHERE decided_at < (SELECT holdfast.now()) - :age ORDER BY decided_at LIMIT :limit::bigint
)
DELETE FROM holdfast.skipped_plan USING expired
WHERE skipped_plan.schedule = expired.schedule AND skipped_plan.last = expired.last
    AND skipped_plan.first = expired.first AND skipped_plan.scope = expired.scope
    AND skipped_plan.reason = expired.reason
RETURNING skipped_plan.count

-- name: prune_idempotency_keys
-- Delete old idempotency keys, and the oldest of more than :most.
DELETE FROM holdfast.idempotency_key
WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM holdfast.idempotency_key
    WHERE at < greatest((SELECT holdfast.now()) - :age::interval,
        (SELECT at FROM holdfast.idempotency_key ORDER BY at DESC OFFSET :most::bigint - 1 LIMIT 1))
    ORDER BY at LIMIT :limit::bigint FOR UPDATE SKIP LOCKED)) RETURNING key

-- name: read_free_pages
-- Vacuum returns free pages at the end of a table, and reuses all others.
SELECT 0 AS free, 0 AS pages

-- name: return_free_pages
-- Nothing to return.
SELECT 0 AS pages

-- name: prune_kinds
-- Delete kinds whose last publication is older than the given age, unless a live job, live worker or schedule has them.
-- planner: each ARRAY is read once, and not once for each old kind; live jobs only if a kind is old and passes all else.
WITH old AS MATERIALIZED (
    SELECT name FROM holdfast.kind
    WHERE published_at < (SELECT holdfast.now()) - :age::interval
        AND name <> ALL(ARRAY(SELECT definition->>'kind' FROM holdfast.schedule))
        AND name <> ALL(ARRAY(SELECT unnest(kinds) FROM holdfast.worker
            WHERE stopped_at IS NULL AND seen_at > (SELECT holdfast.now()) - :age::interval))
), unused AS MATERIALIZED (
    SELECT name FROM old WHERE name <> ALL(ARRAY(SELECT DISTINCT kind FROM holdfast.live)) LIMIT :limit::bigint
)
DELETE FROM holdfast.kind WHERE name = ANY(ARRAY(
    SELECT name FROM holdfast.kind
    WHERE name = ANY(ARRAY(SELECT name FROM unused)) AND published_at < (SELECT holdfast.now()) - :age::interval
    FOR UPDATE SKIP LOCKED)) RETURNING name

-- name: prune_credentials
-- Delete tokens that were revoked before the given age.
SELECT prefix FROM holdfast.prune_credentials(:age::interval, :limit::bigint) AS deleted (prefix)
