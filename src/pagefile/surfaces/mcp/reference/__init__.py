"""The knowledge graph of the reference memory server, with its tools and shapes, on our store.

Read in this order: graph (entities, observations and relations, each change one conditional
commit; and `memory.jsonl`, read and written), graph_tools (the nine tools).
"""
