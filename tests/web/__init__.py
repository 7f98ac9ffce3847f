"""The dashboard and the API, in process."""
