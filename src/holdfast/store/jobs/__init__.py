"""Jobs, leases and dependencies."""
