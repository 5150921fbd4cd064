"""A campaign of faults against processes and servers that work: nothing may be lost, doubled or stuck.

    python -m tests.support.campaign                     everything, about half an hour
    python -m tests.support.campaign --only kills --share 0.1 --seed 7

A site is a PostgreSQL server of its own, an endpoint run by `rowpost run`, and a sender. A kind of fault strikes it at random moments,
which the seed decides. Then the site heals, and a ledger compares what was sent with what is anywhere.
"""
