"""Calls that are awaited."""
