"""Rules for commands: shell programs that run as jobs."""
