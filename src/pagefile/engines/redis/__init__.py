"""The Redis engine: a Redis 7 or Valkey server or cluster, many processes on many machines.

Read in this order:

connection, errors        the URL, commands on the wire, scripts; what errors mean
cluster                   which server has which keys
layout, rows, lua/        names of keys, records as bytes, and the scripts that run in the server
tenant_cache              what this process knows of a tenant and its streams
transaction, writer       one tenant's side of a commit; turns, compare and set, copies waited for
durability                what a commit survives on this server, and how far an erasure reaches
engine, check             reads and the rest of the contract
"""
