"""Commands as jobs: ``add``, ``sweep``, ``run`` and ``log``."""
