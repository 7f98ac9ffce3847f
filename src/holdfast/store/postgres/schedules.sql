-- Schedules on PostgreSQL.

-- name: create_schedule
-- With no history: the first planner that looks decides.
INSERT INTO holdfast.schedule (name, definition, declared, version, provider, next_at, check_at, actor, created_at,
    changed_at)
SELECT :name, :definition::json, :declared::json, :version, :provider, clock.now, clock.now, :actor, clock.now, clock.now
FROM (SELECT holdfast.now() AS now) AS clock
ON CONFLICT (name) DO NOTHING
RETURNING name

-- name: get_schedule
SELECT name, definition::text, declared::text, version, paused, note, cursor, next_at, fired, failures, error, token, actor,
    created_at, changed_at
FROM holdfast.schedule WHERE name = :name

-- name: lock_schedule
SELECT name, definition::text, declared::text, version, paused, note, cursor, next_at, fired, failures, error, token, actor,
    created_at, changed_at
FROM holdfast.schedule WHERE name = :name FOR UPDATE

-- name: list_schedules
SELECT name, definition::text, declared::text, version, paused, note, cursor, next_at, fired, failures, error, token, actor,
    created_at, changed_at
FROM holdfast.schedule WHERE name > :after ORDER BY name LIMIT :limit::bigint

-- name: define_schedule
UPDATE holdfast.schedule SET definition = :definition::json, declared = :declared::json, version = :version,
    provider = :provider
WHERE name = :name

-- name: set_schedule_cursor
-- Where it goes on after a person has changed it. What was decided before is void.
UPDATE holdfast.schedule SET cursor = :cursor, next_at = :next_at, check_at = :next_at, paused = :paused, note = :note,
    failures = 0, error = NULL, token = token + 1, actor = :actor, changed_at = (SELECT holdfast.now())
WHERE name = :name

-- name: delete_schedule
WITH plans AS (DELETE FROM holdfast.plan WHERE schedule = :name),
skips AS (DELETE FROM holdfast.skipped_plan WHERE schedule = :name)
DELETE FROM holdfast.schedule WHERE name = :name RETURNING name

-- name: list_due_schedules
-- Those whose scopes this planner can find out.
SELECT name, definition::text, cursor, fired, failures, token FROM holdfast.schedule
WHERE check_at <= :until::timestamptz AND (provider IS NULL OR provider = ANY(:providers::text[]))
ORDER BY check_at, name LIMIT :limit::bigint

-- name: read_next_check
SELECT check_at - (SELECT holdfast.now()) FROM holdfast.schedule
WHERE check_at IS NOT NULL AND (provider IS NULL OR provider = ANY(:providers::text[]))
ORDER BY check_at, name LIMIT 1

-- name: record_schedule_failure
UPDATE holdfast.schedule SET failures = failures + 1, error = :error, check_at = (SELECT holdfast.now()) + :rest,
    token = token + 1
WHERE name = :name AND token = :token RETURNING name

-- name: read_schedule_lag
-- How long the oldest plan has waited for a planner: among all, and among those that could not be planned.
SELECT greatest(
    (SELECT holdfast.now()) - (SELECT check_at FROM holdfast.schedule WHERE check_at IS NOT NULL ORDER BY check_at LIMIT 1),
    (SELECT holdfast.now()) - (SELECT next_at FROM holdfast.schedule WHERE failures > 0 ORDER BY next_at LIMIT 1))

-- name: list_schedule_problems
-- Those that cannot be planned, or that nobody plans; each found by its index.
SELECT name, error, next_at, next_at < (SELECT holdfast.now()) - :late AS late FROM (
    (SELECT name, error, next_at FROM holdfast.schedule WHERE failures > 0 ORDER BY next_at LIMIT :limit::bigint)
    UNION
    (SELECT name, error, next_at FROM holdfast.schedule WHERE check_at < (SELECT holdfast.now()) - :late
        ORDER BY check_at, name LIMIT :limit::bigint)
) AS troubled ORDER BY name
