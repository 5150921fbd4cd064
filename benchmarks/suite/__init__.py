"""The suite behind `make bench`: workloads, peers, and what becomes of their figures.

figures.py      rounds, medians, ratios, targets       server.py     one server, a database for each workload
peers.py        those that are compared with           workers.py    our own workers, and `rowpost run`
report.py       the data file and the table            charts.py     the pictures
against.py      another commit, in pairs of rounds      side.py       one of the two commits, as a process
workloads/      one module each: measure() gives lines, targets() what they must show
"""
