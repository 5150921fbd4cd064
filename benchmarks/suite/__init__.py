"""The suite behind `make bench`.

program.py      the command line                       server.py     one server, a database for each workload
figures.py      rounds, medians, ratios, targets       workers.py    rowpost's workers, and `rowpost run`
peers.py        the systems rowpost is compared with   report.py     the data file and the table
charts.py       the charts                             workloads/    one module for each workload
against.py      compares two commits in pairs          side.py       the process that measures one of two commits
"""
