"""Where vectors come from: the bundled model, a server with the OpenAI API, or your own embedder.

Read in this order: embedder (the interface), choice, bundled, remote, reranker.
"""
