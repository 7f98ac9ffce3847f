-- Who may do what from afar, and who did what, on SQLite.

-- name: insert_audit_entry
INSERT INTO holdfast_audit_entry (at, actor, via, action, target, count, note)
VALUES (:now, :actor, :via, :action, :target, :count, :note)
RETURNING id

-- name: list_audit_entries
-- A filter looks at so many acts and no more: the next page goes on below them.
SELECT id, at, actor, via, action, target, count, note FROM (
    SELECT id, at, actor, via, action, target, count, note FROM holdfast_audit_entry WHERE id < :before
    ORDER BY id DESC LIMIT :window) AS latest
WHERE (:actor IS NULL OR actor = :actor) AND (:text IS NULL OR instr(lower(target), lower(:text)) > 0)
LIMIT :limit

-- name: prune_audit_entries
DELETE FROM holdfast_audit_entry WHERE id IN (SELECT id FROM holdfast_audit_entry WHERE at < :now - :age ORDER BY at LIMIT :limit)
RETURNING id

-- name: insert_credential
INSERT INTO holdfast_credential (prefix, name, role, salt, hash, actor, created_at)
VALUES (:prefix, :name, :role, :salt, :hash, :actor, :now)
ON CONFLICT DO NOTHING
RETURNING prefix

-- name: list_credentials
SELECT prefix, name, role, salt, hash, actor, created_at, last_used_at, revoked_at FROM holdfast_credential
ORDER BY created_at, prefix

-- name: revoke_credential
UPDATE holdfast_credential SET revoked_at = :now
WHERE (name = :name OR prefix = :name) AND revoked_at IS NULL
RETURNING prefix, name, role, salt, hash, actor, created_at, last_used_at, revoked_at

-- name: touch_credential
-- Once a minute is often enough to tell that somebody uses it.
UPDATE holdfast_credential SET last_used_at = :now
WHERE prefix = :prefix AND (last_used_at IS NULL OR last_used_at < :now - 60000000)

-- name: get_access_state
-- All that a request at the door dependencies to know: is it locked, what signs sessions, and the credential it names.
SELECT EXISTS (SELECT 1 FROM holdfast_credential) AS locked,
    (SELECT value FROM holdfast_secret WHERE name = 'session') AS secret,
    credential.prefix, credential.name, credential.role, credential.salt, credential.hash, credential.revoked_at
FROM (SELECT 1) AS one LEFT JOIN holdfast_credential AS credential ON credential.prefix = :prefix

-- name: insert_secret
INSERT INTO holdfast_secret (name, value, created_at) VALUES (:name, :value, :now)
ON CONFLICT (name) DO NOTHING

-- name: get_secret
SELECT value FROM holdfast_secret WHERE name = :name

-- name: save_filter
INSERT INTO holdfast_saved_filter (name, filter, actor, created_at) VALUES (:name, :filter, :actor, :now)
ON CONFLICT (name) DO UPDATE SET filter = excluded.filter, actor = excluded.actor, created_at = excluded.created_at

-- name: delete_filter
DELETE FROM holdfast_saved_filter WHERE name = :name RETURNING name

-- name: list_filters
SELECT name, filter, actor, created_at FROM holdfast_saved_filter ORDER BY name LIMIT :limit

-- name: claim_idempotency_key
INSERT INTO holdfast_idempotency_key (credential, key, digest, at) VALUES (:credential, :key, :digest, :now)
ON CONFLICT (credential, key) DO NOTHING
RETURNING key

-- name: get_idempotency_key
SELECT digest, status, body FROM holdfast_idempotency_key WHERE credential = :credential AND key = :key

-- name: complete_idempotency_key
UPDATE holdfast_idempotency_key SET status = :status, body = :body WHERE credential = :credential AND key = :key

-- name: release_idempotency_key
DELETE FROM holdfast_idempotency_key WHERE credential = :credential AND key = :key AND status IS NULL

-- name: prune_idempotency_keys
DELETE FROM holdfast_idempotency_key
WHERE (credential, key) IN (SELECT credential, key FROM holdfast_idempotency_key WHERE at < :now - :age ORDER BY at LIMIT :limit)
RETURNING key

-- name: get_trace
SELECT context FROM holdfast_trace WHERE job_id = :id
