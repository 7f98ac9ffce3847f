"""Commands for queues, workers and the autoscaler."""
