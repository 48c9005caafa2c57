"""From unread episodes to facts, or to candidates for review.

Read in this order: claims (how far the reading of an episode is), triage, consolidation, worker;
consolidator does the same without a memory.
"""
