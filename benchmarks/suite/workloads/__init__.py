"""One module each. `measure(server, scale)` gives lines, `targets(lines)` what they must show; the docstring's first
line is the title, its rest stands above the table. `WITH_PEERS` says that peers are to be installed."""

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
    ramp,
    scaling,
    stale,
)

__all__ = ["WORKLOADS"]

#: by name, in the order of a run
WORKLOADS = {
    "calls": calls,
    "endpoint": endpoint,
    "idle": idle,
    "latency": latency,
    "ramp": ramp,
    "depth": depth,
    "scaling": scaling,
    "bodies": bodies,
    "pinned": pinned,
    "stale": stale,
    "expired": expired,
    "delayed": delayed,
}
