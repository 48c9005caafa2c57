"""The library, remote: `pagefile.open("http://…", key=…)`, made from the operations table.

Read in this order:

request      what is asked, what a refusal means, when it is asked again
follow       streams of events, and where they go on after a cut
transport    sending, once blocking and once awaited
calls        a method of the library as a request, from its row of the table
values       values that JSON alone does not tell
threads, runs, memory
             what is more than one request, or answers otherwise
handle       what `pagefile.open` gives
"""

from pagefile.client.transport import Remote

__all__ = ["Remote"]
