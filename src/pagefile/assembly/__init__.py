"""Prompts under a token budget, from threads, runs and memory, each with a receipt.

Read in this order: options, prompt, receipt; message and tail (a conversation, from its end);
budget (who gets how much); assembly, the face.
"""
