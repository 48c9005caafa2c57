"""The Redis engine: a Redis 7 or Valkey server or cluster, many processes on many machines.

Read in this order: address, errors, protocol, server, cluster, connection, durability; then
what is stored: layout, rows, scripts with `lua/`; then a commit: streams, tenant_cache, index,
write_buffer, transaction, single_append, turnstile, attempt, sender; then prefetch, key_search,
check, scrub, engine.
"""
