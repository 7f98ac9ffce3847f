"""Request checks, authentication and sessions."""
