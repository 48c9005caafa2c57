"""A user's data as a whole: exported, imported, forgotten, and kept apart from other users.

Read in this order:

scope, erasure_plan, dependents, dependent_items, prompt_receipts, forget_runs, chunks, remnants
                          what goes
forget, forget_receipt, dry_run
                          forgetting, its receipt, and what it would take
tombstones, guard         what was forgotten does not come back
export, export_forms, importer, placement
                          lines of JSON, out and in
isolation                 the warning for calls that name no user
mixin                     what `Memory` offers of it
"""
