"""Finding what was remembered: by words, by meaning, by who said it and when.

Read in this order:

entry, logs               what the index keeps of one thing, and the log it is folded from
partition                 the index of one user in memory; with `keys`, `labels`, `neighbours`,
                          `growable_array`
text/                     from a question or a text to terms, dates and names; the inverted
                          index
vectors/                  vectors in memory: rotated, quantized, searched
scorer, fusion, candidates, filter, time_proximity
                          one search: every arm, one score
hit, explanation          what was found, and why
partition_cache, heap     which partitions stay in memory
catalogue, index, rebuild, past_index
                          the index of a tenant, made again, at a past position
embed/                    where vectors come from
arms/                     where vectors may be kept besides
extras                    optional packages
"""
