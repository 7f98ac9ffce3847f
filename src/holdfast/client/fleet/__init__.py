"""Workers of an application."""
