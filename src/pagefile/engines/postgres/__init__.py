"""The PostgreSQL engine: many machines, one server, durable to a power cut.

Read in this order:

sql/, schema              the tables, made on first use and brought up to date
connection, errors        the URL, connections and timeouts; what errors mean for the caller
rows                      records and streams in their columns
transaction, writer       one tenant's side of a commit; turns, groups, lost answers
engine                    reads, checks, and the rest of the contract
notifications, vectors    waiting for commits; vectors kept with the data
"""
