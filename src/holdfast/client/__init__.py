"""The objects of user code: handlers, references to jobs, unit functions, schedules."""
