"""Commands for schedules."""
