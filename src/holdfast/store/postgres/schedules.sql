-- Schedules: definitions and cursors.

-- name: delete_schedule
-- Delete a schedule and its plans.
WITH deleted_plans AS (DELETE FROM holdfast.plan WHERE schedule = :name),
deleted_skipped_plans AS (DELETE FROM holdfast.skipped_plan WHERE schedule = :name)
DELETE FROM holdfast.schedule WHERE name = :name RETURNING name
