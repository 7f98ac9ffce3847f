"""The planner and what it needs."""
