"""The knowledge graph of the reference memory server, with its tools and shapes, on our store.

graph           entities, observations and relations, each change one conditional commit
graph_tools     the nine tools
graph_file      `memory.jsonl`, read and written
"""
