"""Batch functions and their runs."""
