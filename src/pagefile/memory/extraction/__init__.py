"""From finished exchanges to proposed facts: by rules, or by a model over HTTP.

`RuleExtractor` is the default and needs nothing. `ChatExtractor` asks a model that
speaks the OpenAI-compatible chat API, and is loaded only when it is asked for.

Read in this order: candidate (what goes in and out), errors; words, clauses, people, objects,
statements, rule_table, rules for the default; chat and model for the other.
"""
