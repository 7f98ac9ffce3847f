"""Output: the text, JSON and NDJSON of commands, progress bars and logs."""
