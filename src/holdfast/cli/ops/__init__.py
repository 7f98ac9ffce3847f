"""Commands to run, deploy and repair an installation."""
