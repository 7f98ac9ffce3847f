"""Commands that run programs as jobs."""
