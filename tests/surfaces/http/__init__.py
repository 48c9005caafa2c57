"""The REST server."""
