"""Snapshots of what users see: commands, answers of the API, pages."""
