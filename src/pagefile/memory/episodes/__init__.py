"""Episodes: finished exchanges, stored once each and findable in the same commit.

Read in this order: episode (with messages and tool calls), writer, store, duplicates.
"""
