"""What an agent is doing: the working set of a task, and a ledger of all that happened to it.

Read in this order:

runs, run       all runs of a tenant, and one of them; `config` is how it keeps its working set
working_set     the shared state; `patch` is how it changes
eviction        what leaves to respect the budget, counted by `tokens`
ledger          what happened, without secrets; `ledger_import` reads one back
rebuild         the working set as the fold of its ledger, and the repair of a damaged one
milestones      what it had become
schema/         the artifacts of a run, checked and published
packs/          a whole run in one file
kinds           where it is stored, and what forgetting and export do with it
"""
