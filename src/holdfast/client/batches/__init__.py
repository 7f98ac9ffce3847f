"""Unit functions and runs of batches."""
