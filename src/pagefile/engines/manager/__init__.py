"""The manager engine: a store in the memory of one process, used by many.

Read in this order: protocol, authentication, address, errors; the process itself: service,
session, event_loop, server; its clients: connection, child, engine.
"""
