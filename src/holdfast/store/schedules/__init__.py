"""Schedules and their plans."""
