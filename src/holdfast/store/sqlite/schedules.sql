-- Schedules: definitions and cursors.

-- name: delete_schedule
-- Delete a schedule and its plans.
DELETE FROM holdfast_plan WHERE schedule = :name;
DELETE FROM holdfast_skipped_plan WHERE schedule = :name;
DELETE FROM holdfast_schedule WHERE name = :name RETURNING name
