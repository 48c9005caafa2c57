"""The manager engine: a store in the memory of one process, used by many.

Read in this order:

protocol                  where a manager listens, who may enter, what is said, errors
service, event_loop, server   the process itself
connection, engine        its clients
"""
