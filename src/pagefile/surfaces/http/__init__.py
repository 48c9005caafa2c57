"""The library over HTTP: `/v1/…`, and the paths of the earlier system.

Read in this order:

config, server, workers   a server and its processes
app, middleware, authentication, limits, router
                          the way of a request
call, ownership, bodies, pagination, etag, query_times, timestamps, slots
                          what routes work with
routes/                   one module for each noun
problems, idempotency, sse, packs, patches, item_pages, tenants
                          parts of answers
openapi, pages            the document, for programs and for people
logs, metrics, tracing    watching it
"""
