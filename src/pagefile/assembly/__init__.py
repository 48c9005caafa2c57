"""Prompts under a token budget, from threads, runs and memory, each with a receipt.

Read in this order: options, prompt, receipt, sources; message, turns, tail (a conversation,
from its end); fixed_part, fence, dynamic_part, relevance; formats, token_count, budget;
receipt_writer, receipt_store; assembly (the face).
"""
