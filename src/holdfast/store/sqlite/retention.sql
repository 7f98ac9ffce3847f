-- name: maintain_ranges
-- Finished jobs are in one table: there are no ranges.
SELECT 0 AS first_id, 0 AS next_id WHERE :age IS NULL AND :width = 0 AND :most = 0

-- name: prune_requests
-- There are no ranges, so none was dropped.
SELECT 0 AS id WHERE :limit < 0 AND :age < 0

-- fragment: not_expired
-- The condition on a request whose outcome was not dropped with its range.
true

-- name: lock_expired_jobs
-- Lock finished jobs past their age, except dependencies of live jobs.
SELECT id FROM holdfast_finished AS finished
-- planner: +id keeps the index by time.
WHERE state = :state AND +id >= :first AND +id < :next AND finished_at < :now - :age AND NOT EXISTS (
    SELECT 1 FROM holdfast_dependency AS dependency JOIN holdfast_live AS live ON live.id = dependency.job_id
    WHERE dependency.dependency_id = finished.id)
ORDER BY finished_at, id LIMIT :limit

-- name: list_live_dependents
-- List which of these jobs are dependencies of live jobs outside the list.
SELECT DISTINCT dependency.dependency_id
FROM holdfast_dependency AS dependency JOIN holdfast_live AS live ON live.id = dependency.job_id
WHERE dependency.dependency_id IN (SELECT value FROM json_each(:ids))
    AND dependency.job_id NOT IN (SELECT value FROM json_each(:ids))

-- name: list_locked_keys
-- List which of these jobs have a key that another transaction has locked. SQLite has no row locks.
SELECT job_id FROM holdfast_key WHERE job_id IN (SELECT value FROM json_each(:ids)) AND false

-- name: prune_keys
-- Delete keys whose period has passed, except those of live jobs.
DELETE FROM holdfast_key
WHERE (kind, key) IN (
    SELECT kind, key FROM holdfast_key
    WHERE expires_at <= :now AND NOT EXISTS (SELECT 1 FROM holdfast_live AS live WHERE live.id = job_id)
        AND NOT EXISTS (SELECT 1 FROM holdfast_live AS live WHERE live.id = previous_id)
    ORDER BY expires_at LIMIT :limit) RETURNING key

-- name: prune_plans
-- Delete old plans, except those of live jobs.
DELETE FROM holdfast_plan WHERE (schedule, time, scope) IN (
    SELECT schedule, time, scope FROM holdfast_plan
    WHERE decided_at < :now - :age AND NOT EXISTS (SELECT 1 FROM holdfast_live AS live WHERE live.id = job_id)
    ORDER BY decided_at LIMIT :limit) RETURNING job_id

-- name: prune_skipped_plans
-- Delete old records of skipped plans.
DELETE FROM holdfast_skipped_plan WHERE (schedule, last, first, scope, reason) IN (
    SELECT schedule, last, first, scope, reason FROM holdfast_skipped_plan
    WHERE decided_at < :now - :age ORDER BY decided_at LIMIT :limit) RETURNING count

-- name: prune_idempotency_keys
-- Delete old idempotency keys, and the oldest of more than :most.
DELETE FROM holdfast_idempotency_key
WHERE (credential, key) IN (
    SELECT credential, key FROM holdfast_idempotency_key
    WHERE at < max(:now - :age, coalesce(
        (SELECT at FROM holdfast_idempotency_key ORDER BY at DESC LIMIT 1 OFFSET :most - 1), 0))
    ORDER BY at LIMIT :limit)
RETURNING key

-- name: read_free_pages
-- Read the free pages and all pages of a file that can return pages: one that Holdfast has created.
SELECT CASE WHEN auto_vacuum = 2 THEN freelist_count ELSE 0 END AS free, page_count AS pages
FROM pragma_freelist_count, pragma_page_count, pragma_auto_vacuum

-- name: return_free_pages
-- Move the last pages of the file into free ones, and cut it with the next checkpoint: 4 MB at a time.
PRAGMA incremental_vacuum(1000)

-- name: prune_kinds
-- Delete kinds whose last publication is older than the given age, unless a live job, live worker or schedule has them.
-- planner: each list is made once, and only if a kind is old.
DELETE FROM holdfast_kind WHERE name IN (
    SELECT name FROM holdfast_kind
    WHERE published_at < :now - :age
        AND name NOT IN (SELECT definition->>'kind' FROM holdfast_schedule)
        AND name NOT IN (SELECT value FROM holdfast_worker, json_each(kinds)
            WHERE stopped_at IS NULL AND seen_at > :now - :age)
        AND name NOT IN (SELECT kind FROM holdfast_live)
    ORDER BY published_at LIMIT :limit) RETURNING name

-- name: prune_credentials
-- Delete tokens that were revoked before the given age.
DELETE FROM holdfast_credential WHERE prefix IN (
    SELECT prefix FROM holdfast_credential WHERE revoked_at < :now - :age ORDER BY revoked_at LIMIT :limit)
RETURNING prefix
