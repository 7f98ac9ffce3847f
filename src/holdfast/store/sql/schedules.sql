-- Schedules: definitions and cursors.

-- fragment: schedule_columns
name, definition::text, declared::text, version, paused, note, cursor, next_at, fired, failures, error, token, actor,
    created_at, changed_at

-- name: create_schedule
-- Create a schedule without history. The first planner decides its first plan.
INSERT INTO holdfast.schedule (name, definition, declared, version, provider, next_at, check_at, actor, created_at,
    changed_at)
SELECT :name, :definition::json, :declared::json, :version, :provider, clock.now, clock.now, :actor, clock.now,
    clock.now
FROM (SELECT (SELECT holdfast.now()) AS now) AS clock WHERE true
ON CONFLICT (name) DO NOTHING
RETURNING name

-- name: get_schedule
-- Read a schedule.
SELECT {schedule_columns} FROM holdfast.schedule WHERE name = :name

-- name: lock_schedule
-- Lock a schedule.
SELECT {schedule_columns} FROM holdfast.schedule WHERE name = :name FOR UPDATE

-- name: list_schedules
-- List schedules by name.
SELECT {schedule_columns} FROM holdfast.schedule WHERE name > :after ORDER BY name LIMIT :limit::bigint

-- name: define_schedule
-- Change the definition of a schedule.
UPDATE holdfast.schedule SET definition = :definition::json, declared = :declared::json, version = :version,
    provider = :provider
WHERE name = :name

-- name: set_schedule_cursor
-- Set the cursor after an operator's change. The token rises, so that decisions under way are void.
UPDATE holdfast.schedule SET cursor = :cursor, next_at = :next_at, check_at = :next_at, paused = :paused, note = :note,
    failures = 0, error = NULL, token = token + 1, actor = :actor, changed_at = (SELECT holdfast.now())
WHERE name = :name

-- name: delete_schedule
-- Delete a schedule and its plans.
WITH deleted_plans AS (DELETE FROM holdfast.plan WHERE schedule = :name),
deleted_skipped_plans AS (DELETE FROM holdfast.skipped_plan WHERE schedule = :name)
DELETE FROM holdfast.schedule WHERE name = :name RETURNING name

-- name: list_due_schedules
-- List schedules that are due and whose scopes this planner can resolve. While the store is stopped, none is due.
SELECT name, definition::text, cursor, fired, failures, token FROM holdfast.schedule
WHERE check_at <= :until::timestamptz AND (provider IS NULL OR provider = ANY(:providers::text[]))
    AND NOT EXISTS (SELECT FROM holdfast.stop_switch)
ORDER BY check_at, name LIMIT :limit::bigint

-- name: read_next_check
-- Read the time until a planner has to check a schedule.
SELECT check_at - (SELECT holdfast.now()) FROM holdfast.schedule
WHERE check_at IS NOT NULL AND (provider IS NULL OR provider = ANY(:providers::text[]))
    AND NOT EXISTS (SELECT FROM holdfast.stop_switch)
ORDER BY check_at, name LIMIT 1

-- name: record_schedule_failure
-- Record a failure to plan and delay the next check.
UPDATE holdfast.schedule SET failures = failures + 1, error = :error, check_at = (SELECT holdfast.now()) + :rest,
    token = token + 1
WHERE name = :name AND token = :token RETURNING name

-- name: read_schedule_lag
-- Read how long the oldest plan has waited for a planner, failing schedules included.
SELECT max((SELECT holdfast.now()) - oldest.at) FROM (
    SELECT min(check_at) AS at FROM holdfast.schedule WHERE check_at IS NOT NULL
    UNION ALL
    SELECT min(next_at) FROM holdfast.schedule WHERE failures > 0) AS oldest

-- name: list_schedule_problems
-- List schedules that fail or that no planner checks.
SELECT name, error, next_at, next_at < (SELECT holdfast.now()) - :late AS late FROM (
    SELECT * FROM (
        SELECT name, error, next_at FROM holdfast.schedule WHERE failures > 0
        ORDER BY next_at LIMIT :limit::bigint) AS failing
    UNION
    SELECT * FROM (
        SELECT name, error, next_at FROM holdfast.schedule WHERE check_at < (SELECT holdfast.now()) - :late
        ORDER BY check_at, name LIMIT :limit::bigint) AS overdue
) AS problem ORDER BY name
