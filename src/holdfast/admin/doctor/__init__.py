"""Checks of the environment and the store, each with its fix."""
