"""The index, embedders, and vectors that are kept elsewhere."""
