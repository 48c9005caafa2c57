"""Finding what was remembered: by words, by meaning, by who said it and when.

Read in this order:

records          what the index stores: entries, their logs, and what it was made with
partition        the index of one user in memory; `columns` and `neighbours` are parts of it
text/            from a question or a text to terms, dates and names; the inverted index
vectors/         vectors in memory: rotated, quantized, searched
scorer           one search: every arm, one score
hit              what was found, and how the arms were mixed
partition_cache  which partitions stay in memory
index            the index of a tenant, now, at a past position, or made again
embed/           where vectors come from
arms/            where vectors may be kept besides
extras           optional packages
kinds            what this room stores
"""
