"""Vectors that are kept outside this process: in pgvector, Qdrant or Redis, or by the store itself.

Read in this order: arm (the interface), choice, remote_vectors, synchronizer; store_arm for
vectors in the store's own commits; then one module for each kind of server.
"""
