"""What an agent saw: threads of immutable slots, forkable, shared between processes.

Read in this order:

slot, usage, thread       one message, and a thread as its readers see it; with `reader`,
                          `follower`
appender, buffer          how a message becomes a slot; the context buffer, which is all of it
residency, policy         which threads stay at hand, and how many
path, registry            call paths and the threads that stand for them; with
                          `registry_documents`, `ownership`
conversations, sweeper    one lifetime for a conversation, and the thread that ends idle ones
backend, lifecycle        what all of it is built on, and how it is closed
shared_backend, singleton one backend or buffer per process
"""
