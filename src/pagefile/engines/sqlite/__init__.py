"""The SQLite engine: one file, many processes, durable to a power cut.

Read in this order: `sql/`, format, file, gate (the turnstile between processes), rows, users,
index, streams, idempotency_keys, foreign_commits (what other processes wrote), transaction,
writer, engine, poller (waiting for commits), check, errors.
"""
