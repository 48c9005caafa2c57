"""The library over HTTP: `/v1/…`, and the paths of the earlier system."""
