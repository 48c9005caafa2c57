"""From a batch to a commit. Everything that a batch means is here, above the engines.

Read in this order:

preparation               checked, encoded, salted, digested
committer                 group commit: the first caller commits for all
rules                     what each operation and condition does inside the transaction, and
                          the short way for appends to one log
idempotency               keys that make a repeat harmless, and what a second commit means
erasure                   what an erasure selects, which records it takes, its receipt
"""
