"""A module that cannot be imported."""

raise RuntimeError("raised at import")
