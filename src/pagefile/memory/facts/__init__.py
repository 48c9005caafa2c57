"""Facts: who, what about them, from when to when. Asserted and retracted, never edited.

Read in this order: fact, plane (valid time × recorded time), documents (how they are stored),
view, reader, index, store; graph; proposal (facts that wait for review); user_facts (all
facts of a user); user_check.
"""
