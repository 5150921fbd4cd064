"""The archive of queues: its table and the reading of queues, for `rowpost archive` and for the jobs of
`rowpost spark`. Imports no pyspark.
"""
