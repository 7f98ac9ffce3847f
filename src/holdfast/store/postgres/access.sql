-- Who may do what from afar, and who did what, on PostgreSQL.

-- name: insert_audit_entry
INSERT INTO holdfast.audit_entry (at, actor, via, action, target, count, note)
VALUES ((SELECT holdfast.now()), :actor, :via, :action, :target, :count, :note)
RETURNING id

-- name: list_audit_entries
-- A filter looks at so many acts and no more: the next page goes on below them.
SELECT id, at, actor, via, action, target, count, note FROM (
    SELECT id, at, actor, via, action, target, count, note FROM holdfast.audit_entry WHERE id < :before
    ORDER BY id DESC LIMIT :window::bigint) AS latest
WHERE (:actor::text IS NULL OR actor = :actor::text) AND (:text::text IS NULL OR position(lower(:text::text) IN lower(target)) > 0)
LIMIT :limit::bigint

-- name: prune_audit_entries
DELETE FROM holdfast.audit_entry
WHERE id = ANY(ARRAY(
    SELECT id FROM holdfast.audit_entry WHERE at < (SELECT holdfast.now()) - :age::interval
    ORDER BY at LIMIT :limit::bigint FOR UPDATE SKIP LOCKED))
RETURNING id

-- name: insert_credential
INSERT INTO holdfast.credential (prefix, name, role, salt, hash, actor, created_at)
VALUES (:prefix, :name, :role, :salt, :hash, :actor, (SELECT holdfast.now()))
ON CONFLICT DO NOTHING
RETURNING prefix

-- name: list_credentials
SELECT prefix, name, role, salt, hash, actor, created_at, last_used_at, revoked_at FROM holdfast.credential
ORDER BY created_at, prefix

-- name: revoke_credential
UPDATE holdfast.credential SET revoked_at = (SELECT holdfast.now())
WHERE (name = :name OR prefix = :name) AND revoked_at IS NULL
RETURNING prefix, name, role, salt, hash, actor, created_at, last_used_at, revoked_at

-- name: touch_credential
-- Once a minute is often enough to tell that somebody uses it.
UPDATE holdfast.credential SET last_used_at = (SELECT holdfast.now())
WHERE prefix = :prefix AND (last_used_at IS NULL OR last_used_at < (SELECT holdfast.now()) - interval '1 minute')

-- name: get_access_state
-- All that a request at the door dependencies to know: is it locked, what signs sessions, and the credential it names.
SELECT EXISTS (SELECT FROM holdfast.credential) AS locked,
    (SELECT value FROM holdfast.secret WHERE name = 'session') AS secret,
    credential.prefix, credential.name, credential.role, credential.salt, credential.hash, credential.revoked_at
FROM (SELECT 1) AS one LEFT JOIN holdfast.credential ON credential.prefix = :prefix

-- name: insert_secret
INSERT INTO holdfast.secret (name, value, created_at) VALUES (:name, :value, (SELECT holdfast.now()))
ON CONFLICT (name) DO NOTHING

-- name: get_secret
SELECT value FROM holdfast.secret WHERE name = :name

-- name: save_filter
INSERT INTO holdfast.saved_filter (name, filter, actor, created_at) VALUES (:name, :filter, :actor, (SELECT holdfast.now()))
ON CONFLICT (name) DO UPDATE SET filter = excluded.filter, actor = excluded.actor, created_at = excluded.created_at

-- name: delete_filter
DELETE FROM holdfast.saved_filter WHERE name = :name RETURNING name

-- name: list_filters
SELECT name, filter, actor, created_at FROM holdfast.saved_filter ORDER BY name LIMIT :limit::bigint

-- name: claim_idempotency_key
INSERT INTO holdfast.idempotency_key (credential, key, digest, at) VALUES (:credential, :key, :digest, (SELECT holdfast.now()))
ON CONFLICT (credential, key) DO NOTHING
RETURNING key

-- name: get_idempotency_key
SELECT digest, status, body FROM holdfast.idempotency_key WHERE credential = :credential AND key = :key

-- name: complete_idempotency_key
UPDATE holdfast.idempotency_key SET status = :status, body = :body WHERE credential = :credential AND key = :key

-- name: release_idempotency_key
DELETE FROM holdfast.idempotency_key WHERE credential = :credential AND key = :key AND status IS NULL

-- name: prune_idempotency_keys
DELETE FROM holdfast.idempotency_key
WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM holdfast.idempotency_key WHERE at < (SELECT holdfast.now()) - :age::interval
    ORDER BY at LIMIT :limit::bigint FOR UPDATE SKIP LOCKED))
RETURNING key

-- name: get_trace
SELECT context FROM holdfast.trace WHERE job_id = :id
