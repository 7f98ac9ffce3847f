"""Claims of a worker: what it asks for, which claim it makes next, and what it does with the jobs."""
