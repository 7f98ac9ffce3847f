"""Executors: they run handlers in threads, coroutines, child processes and commands."""
