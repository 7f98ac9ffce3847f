"""Holdfast: durable jobs for long-running work."""
