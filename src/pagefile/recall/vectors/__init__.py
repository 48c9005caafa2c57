"""The vectors of one partition in memory, and the search through them.

Read in this order: embedding, query_vector, rotation, quantization, slots, vector_index.
"""
