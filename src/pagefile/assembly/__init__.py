"""Assembly: prompts under a token budget, from threads, runs and memory."""
