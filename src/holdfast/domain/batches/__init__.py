"""Rules for batches and their units."""
