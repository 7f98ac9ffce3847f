-- Access: audit log, tokens, secrets, saved filters and idempotency keys.

-- name: list_audit_entries
-- List audit entries, newest first. A filter reads at most :window entries.
SELECT id, at, actor, via, action, target, count, note FROM (
    SELECT id, at, actor, via, action, target, count, note FROM holdfast_audit_entry WHERE id < :before
    ORDER BY id DESC LIMIT :window) AS latest
WHERE (:actor IS NULL OR actor = :actor) AND (:text IS NULL OR instr(lower(target), lower(:text)) > 0)
LIMIT :limit

-- name: touch_credential
-- Record the use of a token, at most once a minute.
UPDATE holdfast_credential SET last_used_at = :now
WHERE prefix = :prefix AND (last_used_at IS NULL OR last_used_at < :now - 60000000)
