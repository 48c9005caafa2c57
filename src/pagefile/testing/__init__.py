"""Contract suites and tools for testing engines, shipped so that strangers can run them."""
