"""Resume packs: a whole run in one file, checked from end to end before it is used.

Read in this order: format, errors, writer, archive, reader, restore; slots, items, milestones
and users for the parts; legacy for the older formats.
"""
