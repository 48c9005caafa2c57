"""One write path: every change is a batch, committed whole, in order, and provable afterwards.

Read in this order:

batch, records            what callers ask for, and what they get back
store, reads              the promises S1 to S11 and every method
snapshot                  the whole store as it was at a position
engine                    the seam below: what an engine is, and what it may have besides
commit/                   from a batch to rows: checked, encoded, grouped, applied
log/                      what the commit log is read for: audit, followers, copies
codec/                    values to canonical bytes and back
clock, arguments          time and random bytes; what callers give, checked
threads                   threads that wait, and threads that work at intervals
atomic_file               a file for people, whole or not there
"""
