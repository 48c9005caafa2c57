"""What an agent is doing: the working set of a task, and a ledger of all that happened to it.

Read in this order:

runs, run, config, names  all runs of a tenant, one of them, how it is set up
working_set, patch, fields, patch_result
                          the shared state and how it changes
eviction, evicted_items, tokens
                          what leaves to respect the budget
ledger, recorder, redaction, ledger_import
                          what happened, without secrets
rebuild, repair, diff     the working set as the fold of its ledger
milestones, knowledge     what it had become, and what it proposes to remember
brief, brief_lines        the working set as text for a model
schema/                   the artifacts of a run, checked and published
packs/                    a whole run in one file
legacy_forms, forgotten_ids
                          earlier forms; ids that must not return
"""
