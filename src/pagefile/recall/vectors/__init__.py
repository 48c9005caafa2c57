"""The vectors of one partition in memory, and the search through them.

Read in this order: embedding, quantization, vector_index.
"""
