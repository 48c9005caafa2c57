"""Real servers for tests and benchmarks, each on a free port of this machine."""
