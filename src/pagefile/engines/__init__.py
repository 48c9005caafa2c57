"""Engines: where the bytes are. Each hangs on `engine.py` alone."""
