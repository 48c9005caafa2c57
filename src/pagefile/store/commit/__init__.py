"""From a batch to a commit. Everything that a batch means is here, above the engines.

Read in this order:

preparation               checked, encoded, salted, digested; with `envelope`, `requirements`,
                          `selector`
committer                 group commit: the first caller commits for all; with `ticket`
                          and `flag`
rules                     what each operation does inside the transaction; `single_log` is the
                          short way
conditions                what a batch depends on
idempotency               a second commit with the same key; `idempotency_key` makes and checks
                          keys
erasure                   which records an erasure takes
"""
