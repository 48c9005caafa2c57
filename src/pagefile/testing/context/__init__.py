"""What the context is held to, as tests that run on any engine."""
