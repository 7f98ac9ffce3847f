-- Schedules on SQLite.

-- name: create_schedule
-- With no history: the first planner that looks decides.
INSERT INTO holdfast_schedule (name, definition, declared, version, provider, next_at, check_at, actor, created_at,
    changed_at)
VALUES (:name, :definition, :declared, :version, :provider, :now, :now, :actor, :now, :now)
ON CONFLICT (name) DO NOTHING
RETURNING name

-- name: get_schedule
SELECT name, definition, declared, version, paused, note, cursor, next_at, fired, failures, error, token, actor,
    created_at, changed_at
FROM holdfast_schedule WHERE name = :name

-- name: lock_schedule
SELECT name, definition, declared, version, paused, note, cursor, next_at, fired, failures, error, token, actor,
    created_at, changed_at
FROM holdfast_schedule WHERE name = :name

-- name: list_schedules
SELECT name, definition, declared, version, paused, note, cursor, next_at, fired, failures, error, token, actor,
    created_at, changed_at
FROM holdfast_schedule WHERE name > :after ORDER BY name LIMIT :limit

-- name: define_schedule
UPDATE holdfast_schedule SET definition = :definition, declared = :declared, version = :version,
    provider = :provider
WHERE name = :name

-- name: set_schedule_cursor
-- Where it goes on after a person has changed it. What was decided before is void.
UPDATE holdfast_schedule SET cursor = :cursor, next_at = :next_at, check_at = :next_at, paused = :paused, note = :note,
    failures = 0, error = NULL, token = token + 1, actor = :actor, changed_at = :now
WHERE name = :name

-- name: delete_schedule
DELETE FROM holdfast_plan WHERE schedule = :name;
DELETE FROM holdfast_skipped_plan WHERE schedule = :name;
DELETE FROM holdfast_schedule WHERE name = :name RETURNING name

-- name: list_due_schedules
-- Those whose scopes this planner can find out.
SELECT name, definition, cursor, fired, failures, token FROM holdfast_schedule
WHERE check_at <= :until AND (provider IS NULL OR provider IN (SELECT value FROM json_each(:providers)))
ORDER BY check_at, name LIMIT :limit

-- name: read_next_check
SELECT check_at - :now FROM holdfast_schedule
WHERE check_at IS NOT NULL AND (provider IS NULL OR provider IN (SELECT value FROM json_each(:providers)))
ORDER BY check_at, name LIMIT 1

-- name: record_schedule_failure
UPDATE holdfast_schedule SET failures = failures + 1, error = :error, check_at = :now + :rest, token = token + 1
WHERE name = :name AND token = :token RETURNING name

-- name: read_schedule_lag
-- How long the oldest plan has waited for a planner: among all, and among those that could not be planned.
SELECT max(:now - at) FROM (
    SELECT min(check_at) AS at FROM holdfast_schedule WHERE check_at IS NOT NULL
    UNION ALL
    SELECT min(next_at) FROM holdfast_schedule WHERE failures > 0)

-- name: list_schedule_problems
-- Those that cannot be planned, or that nobody plans; each found by its index.
SELECT name, error, next_at, next_at < :now - :late AS late FROM (
    SELECT * FROM (
        SELECT name, error, next_at FROM holdfast_schedule WHERE failures > 0 ORDER BY next_at LIMIT :limit)
    UNION
    SELECT * FROM (
        SELECT name, error, next_at FROM holdfast_schedule WHERE check_at < :now - :late
        ORDER BY check_at, name LIMIT :limit)
) ORDER BY name
