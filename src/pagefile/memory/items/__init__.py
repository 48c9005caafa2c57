"""Long-term items: proposed in batches, reviewed, committed whole, undone whole.

Read in this order: change, item, proposal, approval, plan, store, reader, bm25, text_search,
run_events.
"""
