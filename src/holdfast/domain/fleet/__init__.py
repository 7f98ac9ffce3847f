"""Rules for queues, workers and the autoscaler."""
