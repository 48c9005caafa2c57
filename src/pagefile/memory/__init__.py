"""What an agent knows, kept apart for each user: blocks, episodes, facts and items.

Read in this order:

memory                    the face of it all
block, blocks             named text that stands in every prompt; `block_mixin` offers it
episodes/                 finished exchanges, as they happened
extraction/               from exchanges to candidates for facts
consolidation/            from episodes to facts, once each
facts/                    what is known: valid when, recorded when
items/                    long-term items: proposed, reviewed, committed
recaller, search, match   finding all of it; `prompt_memory` is what a prompt may use
provenance, usage         why something is known, and which recalls used it
privacy/                  export, import, forget, isolation
profile, overview         a user at a glance
index_source, vector_follower
                          what the search index is made from, and kept in step
owner, ids, text, serializer, batcher, read_cache, user_check
                          tools of the above
"""
