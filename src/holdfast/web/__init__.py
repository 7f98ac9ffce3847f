"""The dashboard and the HTTP API: what people open when something is late."""
