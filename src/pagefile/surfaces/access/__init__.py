"""Who may do what: keys, tokens, rights, and the record of refusals.

Read in this order: identity, keys, tokens, refusals.
"""
