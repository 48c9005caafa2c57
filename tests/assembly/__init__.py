"""Prompts under a budget."""
