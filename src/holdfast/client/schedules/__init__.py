"""Schedules declared in code or changed at run time."""
