"""Queues, kinds, workers and the autoscaler."""
