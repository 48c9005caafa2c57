"""The commands, a module for each noun. What is heavy is imported inside them."""
