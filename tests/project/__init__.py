"""Docs, examples, frozen names, the wheel, and the suite itself."""
