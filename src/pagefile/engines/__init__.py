"""How bytes are kept. Each engine implements `store/engine.py` and decides nothing else.

memory                    the whole contract in Python objects: read it first
sqlite/                   one file, many processes
postgres/                 one server, many machines
redis/                    a Redis or Valkey server or cluster
manager/                  the memory engine in a process of its own, used by many
common                    what several engines share
"""
