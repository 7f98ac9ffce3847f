-- Access: audit log, tokens, sessions, secrets, saved filters and idempotency keys.

-- fragment: credential_columns
prefix, name, role, inbox, hash, actor, created_at, last_used_at, revoked_at

-- name: insert_audit_entry
-- Record an action. db_user has its default: roles may not write it.
INSERT INTO holdfast.audit_entry (at, actor, via, action, target, count, note, os_user)
VALUES ((SELECT holdfast.now()), :actor, :via, :action, :target, :count, :note, :os_user)
RETURNING id

-- name: update_audit_entry
-- Add to the entry of an action that takes several transactions.
UPDATE holdfast.audit_entry SET target = :target, count = :count WHERE id = :id

-- name: list_audit_entries
-- List audit entries, newest first. A filter reads at most :window entries.
SELECT id, at, actor, via, action, target, count, note, os_user, db_user FROM (
    SELECT * FROM holdfast.audit_entry WHERE id < :before ORDER BY id DESC LIMIT :window::bigint) AS latest
WHERE (:actor::text IS NULL OR actor = :actor::text)
    AND (:text::text IS NULL OR strpos(lower(target), lower(:text::text)) > 0)
LIMIT :limit::bigint

-- name: insert_credential
-- Create a token, unless its name or prefix is taken.
INSERT INTO holdfast.credential (prefix, name, role, inbox, hash, actor, created_at)
VALUES (:prefix, :name, :role, :inbox, :hash, :actor, (SELECT holdfast.now()))
ON CONFLICT DO NOTHING RETURNING prefix

-- name: list_credentials
-- List tokens, revoked ones included.
SELECT {credential_columns} FROM holdfast.credential
ORDER BY created_at, prefix

-- name: revoke_credential
-- Revoke a token by name or prefix.
UPDATE holdfast.credential SET revoked_at = (SELECT holdfast.now())
WHERE (name = :name OR prefix = :name) AND revoked_at IS NULL RETURNING {credential_columns}

-- name: touch_credential
-- Record the use of a token, at most once a minute.
UPDATE holdfast.credential SET last_used_at = (SELECT holdfast.now())
WHERE prefix = :prefix AND (last_used_at IS NULL OR last_used_at < (SELECT holdfast.now()) - {one_minute})

-- name: get_valid_credential
-- Find a valid token by its public prefix.
SELECT {credential_columns} FROM holdfast.credential WHERE prefix = :prefix AND revoked_at IS NULL

-- name: has_valid_credential
-- Whether a valid token exists.
SELECT EXISTS (SELECT FROM holdfast.credential WHERE revoked_at IS NULL)

-- name: get_credential_named
-- Find the valid token of this name.
SELECT prefix FROM holdfast.credential WHERE name = :name AND revoked_at IS NULL

-- name: insert_session
-- Keep a session, or a link that opens one.
INSERT INTO holdfast.session (hash, is_link, name, role, prefix, created_at, expires_at)
VALUES (:hash, :is_link, :name, :role, :prefix, (SELECT holdfast.now()), (SELECT holdfast.now()) + :lifetime::interval)
RETURNING hash

-- name: get_session
-- Find a valid session by the hash of its cookie. The session of a token ends with the token.
SELECT session.hash, session.name, session.role, session.prefix FROM holdfast.session AS session
WHERE session.hash = :hash AND {session_is_valid}

-- fragment: session_is_valid
NOT session.is_link AND session.expires_at > (SELECT holdfast.now())
    AND (session.prefix IS NULL OR EXISTS (SELECT FROM holdfast.credential AS credential
        WHERE credential.prefix = session.prefix AND credential.revoked_at IS NULL))

-- name: list_current_access
-- List those of the sessions and tokens of open pages that are valid.
SELECT session.hash FROM holdfast.session AS session
WHERE session.hash = ANY(:hashes::text[]) AND {session_is_valid}
UNION ALL
SELECT credential.prefix FROM holdfast.credential AS credential
WHERE credential.prefix = ANY(:prefixes::text[]) AND credential.revoked_at IS NULL

-- name: use_link
-- Take a link that opens a session. Of several requests with one link, one gets its row.
DELETE FROM holdfast.session WHERE hash = :hash AND is_link AND expires_at > (SELECT holdfast.now())
RETURNING role

-- name: prune_sessions
-- Delete sessions and links that have expired.
DELETE FROM holdfast.session WHERE expires_at < (SELECT holdfast.now()) RETURNING hash

-- name: delete_session
-- Sign out of one session.
DELETE FROM holdfast.session WHERE hash = :hash RETURNING hash

-- name: delete_sessions_of
-- Sign a person out of all sessions.
DELETE FROM holdfast.session WHERE name = :name AND NOT is_link RETURNING hash

-- name: read_command_switch
-- Find out whether commands are switched off.
SELECT switched_off_at FROM holdfast.command_switch

-- name: switch_commands_off
-- Forbid commands. No row comes back if they are off already.
INSERT INTO holdfast.command_switch (single_row, switched_off_at) VALUES (true, (SELECT holdfast.now()))
ON CONFLICT (single_row) DO NOTHING RETURNING single_row

-- name: switch_commands_on
-- Allow commands. No row comes back if they are on already.
DELETE FROM holdfast.command_switch RETURNING single_row

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
WHERE saved_filter.filter <> excluded.filter RETURNING name

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
ON CONFLICT (credential, key) DO NOTHING RETURNING key

-- name: get_idempotency_key
-- Read the recorded answer of an idempotency key.
SELECT digest, status, body FROM holdfast.idempotency_key WHERE credential = :credential AND key = :key

-- name: complete_idempotency_key
-- Record the answer of an idempotency key.
UPDATE holdfast.idempotency_key SET status = :status, body = :body WHERE credential = :credential AND key = :key
