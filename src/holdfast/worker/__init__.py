"""The worker: services that do their work in ``tick()``, and executors that run handlers."""
