"""Rules for jobs."""
