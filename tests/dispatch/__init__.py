"""Organisms, listeners and workers. `ground` is what the tests share."""
