"""The PostgreSQL engine: many machines, one server, durable to a power cut.

Read in this order: `sql/`, address, errors, connection, timeouts, schema; then a commit: rows,
users, index, binary_format, inserts, write_buffer, prefetch, transaction, writer; then
notifications, check, vectors, engine.
"""
