"""The seven artifacts of a run: defined once, checked by compiled code, published as JSON Schema.

Read in this order: shapes (the vocabulary), definitions, timestamps, compiler, mismatches,
artifacts (the face), json_schema, which writes the files in `published/`.
"""
