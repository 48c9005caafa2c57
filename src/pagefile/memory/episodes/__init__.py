"""Episodes: finished exchanges, stored once each and findable in the same commit.

Read in this order: message, episode, writer, store, cache, session, speaker, recognition,
duplicates.
"""
