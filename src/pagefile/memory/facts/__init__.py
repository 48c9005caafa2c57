"""Facts: who, what about them, from when to when. Asserted and retracted, never edited.

Read in this order: fact, plane and plane_sweep (valid time × recorded time), documents,
ledgers, salvage, view, reader, commits, index, store, kinds, aliases, update, history,
text_search; graph and stored_graph; proposal (facts that wait for review); user_facts and
export_lines (all facts of a user); user_check.
"""
