"""The planner and its helpers."""
