"""One write path: every change is a batch, committed whole, in order, and provable afterwards.

Read in this order:

records, batch, query     what callers get back, and what they ask for
store, reads              the promises S1 to S11 and every method; `vectors` adds to them
engine, capabilities      the seam below: what an engine is, and what it may have besides
commit/                   from a batch to rows: checked, encoded, grouped, applied
log/                      what the commit log is read for: audit, followers, copies
codec/                    values to canonical bytes and back
content, history          one record and its digest; a stream as it was at a position
snapshot                  the whole store as it was at a position
clock, names, bounds      time and random bytes, valid names, valid numbers
periodic_thread           a thread that works at intervals
atomic_file               a file for people, whole or not there
"""
