"""The SQLite engine: one file, many processes, durable to a power cut.

Read in this order:

sql/, format              the tables; whose a file is, and which format it has
file                      connections, durability, the write lock and the turnstile before it
rows                      records, streams, users and keys as they stand in the file
transaction, writer       one tenant's side of a commit; the only one who writes
engine                    reads, checks, and the rest of the contract
poller                    waiting for commits
errors                    what SQLite's errors mean for the caller
"""
