"""Episodes, facts, items, the graph, extraction, and what is forgotten."""
