"""A user's data as a whole: exported, imported, forgotten, and kept apart from other users.

What there is of a user is not listed here: each room says it, as `pagefile.store.kinds`.
Read in this order:

erasure_plan              how much is to be forgotten, and what it takes
dependents, remnants      what follows from it, and what goes or stays beside it
forget, forget_receipt    forgetting, and what it says of itself
tombstones                what was forgotten does not come back
export, importer          lines of JSON, out and in
isolation                 the warning for calls that name no user
"""
