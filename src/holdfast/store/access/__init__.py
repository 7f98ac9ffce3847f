"""Audit entries, tokens, saved filters and idempotency keys."""
