"""Roles, tokens and masking of secrets."""
