-- Access: audit log, tokens, secrets, saved filters and idempotency keys.

-- name: list_audit_entries
-- List audit entries, newest first. A filter reads at most :window entries.
SELECT id, at, actor, via, action, target, count, note FROM (
    SELECT id, at, actor, via, action, target, count, note FROM holdfast.audit_entry WHERE id < :before
    ORDER BY id DESC LIMIT :window::bigint) AS latest
WHERE (:actor::text IS NULL OR actor = :actor::text) AND (:text::text IS NULL OR position(lower(:text::text) IN lower(target)) > 0)
LIMIT :limit::bigint

-- name: touch_credential
-- Record the use of a token, at most once a minute.
UPDATE holdfast.credential SET last_used_at = (SELECT holdfast.now())
WHERE prefix = :prefix AND (last_used_at IS NULL OR last_used_at < (SELECT holdfast.now()) - interval '1 minute')
