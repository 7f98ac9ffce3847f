"""The autoscaler: how many commands of a queue run on this host."""
