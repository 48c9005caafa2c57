"""Threads, slots, and the registry of call paths."""
