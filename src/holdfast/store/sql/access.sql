-- Access: audit log, tokens, secrets, saved filters and idempotency keys.

-- fragment: credential_columns
prefix, name, role, salt, hash, actor, created_at, last_used_at, revoked_at

-- name: insert_audit_entry
-- Record an action.
INSERT INTO holdfast.audit_entry (at, actor, via, action, target, count, note)
VALUES ((SELECT holdfast.now()), :actor, :via, :action, :target, :count, :note)
RETURNING id

-- name: update_audit_entry
-- Add to the entry of an action that takes several transactions.
UPDATE holdfast.audit_entry SET target = :target, count = :count WHERE id = :id

-- name: list_audit_entries
-- List audit entries, newest first. A filter reads at most :window entries.
SELECT id, at, actor, via, action, target, count, note FROM (
    SELECT id, at, actor, via, action, target, count, note FROM holdfast.audit_entry WHERE id < :before
    ORDER BY id DESC LIMIT :window::bigint) AS latest
WHERE (:actor::text IS NULL OR actor = :actor::text)
    AND (:text::text IS NULL OR strpos(lower(target), lower(:text::text)) > 0)
LIMIT :limit::bigint

-- name: insert_credential
-- Create a token, unless its name or prefix is taken.
INSERT INTO holdfast.credential (prefix, name, role, salt, hash, actor, created_at)
VALUES (:prefix, :name, :role, :salt, :hash, :actor, (SELECT holdfast.now()))
ON CONFLICT DO NOTHING
RETURNING prefix

-- name: list_credentials
-- List tokens, revoked ones included.
SELECT {credential_columns} FROM holdfast.credential
ORDER BY created_at, prefix

-- name: revoke_credential
-- Revoke a token by name or prefix.
UPDATE holdfast.credential SET revoked_at = (SELECT holdfast.now())
WHERE (name = :name OR prefix = :name) AND revoked_at IS NULL
RETURNING {credential_columns}

-- name: touch_credential
-- Record the use of a token, at most once a minute.
UPDATE holdfast.credential SET last_used_at = (SELECT holdfast.now())
WHERE prefix = :prefix AND (last_used_at IS NULL OR last_used_at < (SELECT holdfast.now()) - {one_minute})

-- name: get_access_state
-- Read all that a request needs: whether tokens exist, the session secret, and the token it names.
SELECT EXISTS (SELECT FROM holdfast.credential AS credential) AS locked,
    (SELECT value FROM holdfast.secret WHERE name = 'session') AS secret,
    credential.prefix, credential.name, credential.role, credential.salt, credential.hash, credential.revoked_at
FROM (SELECT 1) AS single_row LEFT JOIN holdfast.credential AS credential ON credential.prefix = :prefix

-- name: insert_secret
-- Store a secret. The first value stays.
INSERT INTO holdfast.secret (name, value, created_at) VALUES (:name, :value, (SELECT holdfast.now()))
ON CONFLICT (name) DO NOTHING

-- name: get_secret
-- Read a secret.
SELECT value FROM holdfast.secret WHERE name = :name

-- name: save_filter
-- Save a filter by name. No row comes back if it is saved already.
INSERT INTO holdfast.saved_filter AS saved_filter (name, filter, actor, created_at) VALUES (:name, :filter, :actor,
    (SELECT holdfast.now()))
ON CONFLICT (name) DO UPDATE SET filter = excluded.filter, actor = excluded.actor, created_at = excluded.created_at
WHERE saved_filter.filter <> excluded.filter
RETURNING name

-- name: delete_filter
-- Delete a saved filter.
DELETE FROM holdfast.saved_filter WHERE name = :name RETURNING name

-- name: list_filters
-- List saved filters.
SELECT name, filter, actor, created_at FROM holdfast.saved_filter ORDER BY name LIMIT :limit::bigint

-- name: claim_idempotency_key
-- Claim an idempotency key. The response follows in the same transaction.
INSERT INTO holdfast.idempotency_key (credential, key, digest, at) VALUES (:credential, :key, :digest,
    (SELECT holdfast.now()))
ON CONFLICT (credential, key) DO NOTHING
RETURNING key

-- name: get_idempotency_key
-- Read the recorded answer of an idempotency key.
SELECT digest, status, body FROM holdfast.idempotency_key WHERE credential = :credential AND key = :key

-- name: complete_idempotency_key
-- Record the answer of an idempotency key.
UPDATE holdfast.idempotency_key SET status = :status, body = :body WHERE credential = :credential AND key = :key
