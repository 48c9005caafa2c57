"""Calls that block."""
