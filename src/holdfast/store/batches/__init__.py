"""Batches, their ledgers, shards and inboxes."""
