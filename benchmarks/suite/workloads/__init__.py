"""The workloads, one in each module.

`measure(server, scale)` returns lines, and `targets(lines)` the targets that they must reach. In the report, the first line
of the module's docstring is the title, and the rest is the text above the table. If `WITH_PEERS` is true, the suite installs
the peers first.
"""

from benchmarks.suite.workloads import (
    bodies,
    calls,
    delayed,
    depth,
    endpoint,
    expired,
    idle,
    latency,
    pinned,
    publish,
    ramp,
    scaling,
    stale,
    trickle,
)

__all__ = ["WORKLOADS"]

#: By name, in the order of a run.
WORKLOADS = {
    "calls": calls,
    "endpoint": endpoint,
    "publish": publish,
    "idle": idle,
    "latency": latency,
    "trickle": trickle,
    "ramp": ramp,
    "depth": depth,
    "scaling": scaling,
    "bodies": bodies,
    "pinned": pinned,
    "stale": stale,
    "expired": expired,
    "delayed": delayed,
}
