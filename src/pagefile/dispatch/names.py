"""Where dispatch keeps its things in a store: one prefix for each kind.

dispatch/conversation/<thread>  who works on it; its version is the fence
dispatch/journal/<thread>       what was sent, done and answered in it
dispatch/state/<thread>/<name>  what a handler put through its handle
dispatch/worker/<id>            a process that is alive, and how it is doing
dispatch/taken/<message>        that a message id of the caller's was used
dispatch/dead/<message>         a message that nobody could handle
dispatch/bell                   that somebody left work for others
"""

from __future__ import annotations

CONVERSATIONS = "dispatch/conversation/"
JOURNALS = "dispatch/journal/"
STATES = "dispatch/state/"
WORKERS = "dispatch/worker/"
TAKEN = "dispatch/taken/"
DEAD = "dispatch/dead/"
BELL = "dispatch/bell"

#: Keys: open conversations by (organism, owner), ended things and dead letters by time.
OPEN = "dispatch.open"
ENDED = "dispatch.ended"
DEAD_AT = "dispatch.dead"
