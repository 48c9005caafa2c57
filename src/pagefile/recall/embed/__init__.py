"""Where vectors come from: the bundled model, a server with the OpenAI API, or your own embedder.

Read in this order: embedder (the interface), choice, bundled with `model_files` and `onnx`,
remote, reranker.
"""
