"""Pure rules: no I/O, no clock, no threads."""
