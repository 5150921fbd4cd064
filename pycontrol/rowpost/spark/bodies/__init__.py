"""Message bodies as typed columns: schema files, parsers by content type, and the fitting of values to types.

No module here reads a table.
"""
