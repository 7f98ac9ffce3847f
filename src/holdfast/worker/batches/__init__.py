"""Runs of batches: units are taken, run by threads, and written to the ledger in groups."""
