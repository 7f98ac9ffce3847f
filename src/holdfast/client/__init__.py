"""What user code holds: handlers, references, batch functions, schedules."""
