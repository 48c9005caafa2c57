"""The library over HTTP: `/v1/…`, and the paths of the earlier system.

What can be asked is in `pagefile.operations`. Read in this order:

config, server       a server and its processes
app                  the parts of one, opened together
middleware, gate     what every request passes: who is let in, how much, how long
idempotency          a repeated request is answered as the first one was
call, request        what is known of a request, and what is read of it
table, endpoints     the operations that are served, and how they become routes
problems             refusals
openapi              the document, for programs and for people
earlier              the paths of the earlier system
telemetry            watching it
"""
