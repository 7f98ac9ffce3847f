"""Rules for schedules and their plans."""
