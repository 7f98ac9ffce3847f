-- Schedules: definitions and cursors.

-- fragment: schedule_columns
name, definition::text, declared::text, version, paused, note, cursor, next_at, fired, failures, error, token, actor,
    created_at, changed_at, application

-- name: create_schedule
-- Create a schedule.
INSERT INTO holdfast.schedule (name, definition, declared, application, version, provider, cursor, next_at, check_at,
    token, actor, created_at, changed_at) VALUES (:name, :definition::json, :declared::json, :application, :version,
    :provider, :cursor, :next_at, :next_at, :token, :actor, :at, :at)
ON CONFLICT (name) DO NOTHING RETURNING name

-- name: get_schedule
-- Read a schedule.
SELECT {schedule_columns} FROM holdfast.schedule WHERE name = :name

-- name: lock_schedule
-- Lock a schedule.
SELECT {schedule_columns} FROM holdfast.schedule WHERE name = :name FOR UPDATE

-- name: list_schedules
-- List schedules by name.
SELECT {schedule_columns} FROM holdfast.schedule WHERE name > :after AND {where} ORDER BY name LIMIT :limit::bigint

-- fragment: schedule_is_active
-- Condition: it will fire.
next_at IS NOT NULL AND failures = 0

-- fragment: schedule_is_paused
-- Condition: a person has paused it.
paused

-- fragment: schedule_is_failing
-- Condition: it cannot be planned.
failures > 0 AND NOT paused

-- fragment: schedule_is_over
-- Condition: it has no next plan.
next_at IS NULL AND NOT paused AND failures = 0

-- fragment: schedule_has_kind
-- Condition: it fires jobs of a kind.
definition->>'kind' = :kind

-- fragment: schedule_has_text
-- Condition: its name contains a text.
strpos(name, :text) > 0

-- name: define_schedule
-- Change the definition of a schedule.
UPDATE holdfast.schedule SET definition = :definition::json, declared = :declared::json, version = :version,
    application = :application, provider = :provider
WHERE name = :name

-- name: set_schedule_cursor
-- Set the cursor after an operator's change. The token rises, so that unfinished decisions are void.
UPDATE holdfast.schedule SET cursor = :cursor, next_at = :next_at, check_at = :next_at, paused = :paused, note = :note,
    failures = 0, error = NULL, token = token + 1, actor = :actor, changed_at = (SELECT holdfast.now())
WHERE name = :name

-- name: delete_schedule
-- Delete a schedule. Its plans stay: no later schedule of this name repeats them.
DELETE FROM holdfast.schedule WHERE name = :name RETURNING name

-- name: list_due_schedules
-- List schedules without a scope provider that are due. While the store is stopped, none is due.
SELECT name, definition::text, cursor, fired, failures, token FROM holdfast.schedule
WHERE check_at <= :until::timestamptz AND provider IS NULL AND NOT EXISTS (SELECT FROM holdfast.stop_switch)
ORDER BY check_at, name LIMIT :limit::bigint

-- name: list_due_schedules_of_provider
-- List schedules of a scope provider that are due and for which this planner has no unfinished call (busy).
SELECT name, definition::text, cursor, fired, failures, token FROM holdfast.schedule
WHERE provider = :provider AND check_at <= :until::timestamptz AND NOT name = ANY(:busy::text[])
ORDER BY check_at, name LIMIT :limit::bigint

-- name: list_next_checks
-- List the next time that a planner has to check a schedule: of those without a provider, and of each provider.
SELECT NULL AS provider, (
    SELECT check_at FROM holdfast.schedule WHERE check_at IS NOT NULL AND provider IS NULL
    ORDER BY check_at, name LIMIT 1) AS check_at
WHERE NOT EXISTS (SELECT FROM holdfast.stop_switch)
UNION ALL
SELECT requested.value, (
    SELECT check_at FROM holdfast.schedule AS schedule
    WHERE provider = requested.value AND check_at IS NOT NULL AND NOT EXISTS (
        SELECT FROM jsonb_to_recordset(:waiting::jsonb) AS waiting (provider text, name text)
        WHERE waiting.provider = requested.value AND waiting.name = schedule.name)
    ORDER BY check_at, name LIMIT 1)
FROM unnest(:providers::text[]) AS requested (value) WHERE NOT EXISTS (SELECT FROM holdfast.stop_switch)

-- name: record_schedule_failure
-- Record a failure to plan and delay the next check. Of planners that fail at the same time, one records it. The token
-- stays: a planner that can plan the schedule may do so. A schedule that another transaction has locked is left alone.
UPDATE holdfast.schedule SET failures = failures + 1, error = :error, check_at = (SELECT holdfast.now()) + :rest
WHERE name = ANY(ARRAY(
    SELECT name FROM holdfast.schedule WHERE name = :name AND token = :token AND failures = :failures
    FOR UPDATE SKIP LOCKED))
RETURNING name

-- name: read_schedule_lag
-- Read how long the oldest plan has waited for a planner, failing schedules included.
-- planner: one branch for each index.
SELECT max((SELECT holdfast.now()) - oldest.at) FROM (
    SELECT min(check_at) AS at FROM holdfast.schedule WHERE check_at IS NOT NULL AND provider IS NULL
    UNION ALL
    SELECT min(check_at) FROM holdfast.schedule WHERE check_at IS NOT NULL AND provider IS NOT NULL
    UNION ALL
    SELECT min(next_at) FROM holdfast.schedule WHERE failures > 0) AS oldest

-- name: list_schedule_problems
-- List schedules that fail or that no planner checks.
-- planner: one branch for each index.
SELECT name, error, next_at, next_at < (SELECT holdfast.now()) - :late AS late FROM (
    SELECT * FROM (
        SELECT name, error, next_at FROM holdfast.schedule WHERE failures > 0
        ORDER BY next_at LIMIT :limit::bigint) AS failing
    UNION
    SELECT * FROM (
        SELECT name, error, next_at FROM holdfast.schedule
        WHERE check_at < (SELECT holdfast.now()) - :late AND provider IS NULL
        ORDER BY check_at, name LIMIT :limit::bigint) AS overdue
    UNION
    SELECT * FROM (
        SELECT name, error, next_at FROM holdfast.schedule
        WHERE check_at < (SELECT holdfast.now()) - :late AND provider IS NOT NULL
        ORDER BY check_at, name LIMIT :limit::bigint) AS scoped
) AS problem ORDER BY name
