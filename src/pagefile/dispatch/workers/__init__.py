"""Who runs handlers, in this process and in others.

Read in this order: runner, threads; pool, pool_entry, protocol (what crosses between
processes); executors, remote_pool, dask_executor; presence and wakeup for the processes of one
organism.
"""
