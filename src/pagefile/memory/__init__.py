"""What an agent knows, kept apart for each user: blocks, episodes, facts and items.

Read in this order:

memory          the face of it all
blocks          named text that stands in every prompt
episodes/       finished exchanges, as they happened
extraction/     from exchanges to candidates for facts
consolidation/  from episodes to facts, once each
facts/          what is known: valid when, recorded when
items/          long-term items: proposed, reviewed, committed
recaller        from a question to episodes, facts and items; `prompt_memory` is what a
                prompt may use
provenance      why something is known, which recalls used it, and a user at a glance
privacy/        export, import, forget, isolation
index_source    what the search index is made from
documents       how documents are named and stored: owners, ids, structs as JSON
kinds           what this room stores, and what forgetting and export do with it
"""
