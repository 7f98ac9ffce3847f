"""Commands: their processes, caps and output."""
