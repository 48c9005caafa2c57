"""What an agent saw: threads of immutable slots, forkable, shared between processes.

Read in this order:

names, slot, thread       one message, and a thread as its readers see it
appender, buffer          how a message becomes a slot; the context buffer, which is all of it
residency                 which threads stay at hand, and how many
path, registry            call paths and the threads that stand for them; with
                          `registry_documents`
conversations             one lifetime for a conversation, and the thread that ends idle ones
backend, shared_backend   what all of it is built on; one per process
"""
