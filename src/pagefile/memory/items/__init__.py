"""Long-term items: proposed in batches, reviewed, committed whole, undone whole.

Read in this order: change, item, proposal (with who may approve), plan, store, reader.
"""
