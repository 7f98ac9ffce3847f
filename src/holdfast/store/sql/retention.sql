-- Retention: delete jobs, prune rows past their age.

-- name: prune_workers
-- Delete workers that were last seen before the given age.
DELETE FROM holdfast.worker
WHERE id = ANY(ARRAY(
    SELECT id FROM holdfast.worker WHERE seen_at < (SELECT holdfast.now()) - :age::interval
    ORDER BY seen_at LIMIT :limit::bigint FOR UPDATE SKIP LOCKED))
RETURNING id

-- name: prune_decisions
-- Delete old decisions of autoscalers.
DELETE FROM holdfast.autoscaler_decision WHERE id = ANY(ARRAY(
    SELECT id FROM holdfast.autoscaler_decision WHERE at < (SELECT holdfast.now()) - :age::interval
    ORDER BY at LIMIT :limit::bigint FOR UPDATE SKIP LOCKED))
RETURNING id

-- name: prune_memory_profiles
-- Delete memory profiles that were not updated for the given age.
DELETE FROM holdfast.memory_profile WHERE name = ANY(ARRAY(
    SELECT name FROM holdfast.memory_profile WHERE updated_at < (SELECT holdfast.now()) - :age::interval
    ORDER BY updated_at LIMIT :limit::bigint FOR UPDATE SKIP LOCKED))
RETURNING name

-- name: prune_audit_entries
-- Delete old audit entries.
DELETE FROM holdfast.audit_entry
WHERE id = ANY(ARRAY(
    SELECT id FROM holdfast.audit_entry WHERE at < (SELECT holdfast.now()) - :age::interval
    ORDER BY at LIMIT :limit::bigint FOR UPDATE SKIP LOCKED))
RETURNING id
