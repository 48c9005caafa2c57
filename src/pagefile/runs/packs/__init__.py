"""Resume packs: a whole run in one file, checked from end to end before it is used.

Read in this order: format, members, writer, archive, reader, restore; legacy for the older
formats.
"""
