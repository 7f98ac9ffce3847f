"""Handlers and references to jobs."""
