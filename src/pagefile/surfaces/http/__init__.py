"""The library over HTTP: `/v1/…`, and the paths of the earlier system.

Read in this order:

config, environment, server, workers, shutdown
                          a server and its processes
app, protocol, middleware, authentication, limits, deadlines
                          the way of a request
call, ownership, bodies, pagination, etag, query_times, timestamps, slots
                          what routes work with
routes/                   one module for each noun; `hot_routes` and `express` are the fast ones
problems, idempotency, sse, spool, packs, patches, item_pages, read_batcher, tenants
                          parts of answers
openapi, pages            the document, for programs and for people
logs, metrics, worker_metrics, worker_log, tracing
                          watching it
"""
