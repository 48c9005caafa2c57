"""Who runs handlers, in this process and in others.

Read in this order: scheduler (whose turn it is), own_thread (what a handler may do), runner; pool,
pool_entry, protocol (what crosses between processes); dask_executor; presence, for the processes
of one organism.
"""
