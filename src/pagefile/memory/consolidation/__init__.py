"""From unread episodes to facts, or to candidates for review.

Read in this order: policy, report, extraction_state, claims, contradiction, triage,
consolidation, reset, worker, consolidator (without a memory), mixin (what `Memory` offers of
it).
"""
