"""A stand-in for the endpoint in C#, where no .NET is installed. It is no .NET endpoint, and shows nothing about NServiceBus.

It is `rowpost_endpoint.py` once more, in the other role. With it the driver and the scenarios run as real processes against a real
database, so that they are known to work before they meet NServiceBus. What the two programs say to each other here is rowpost's own wire
format on both ends: a mistake in it that both ends share is not seen.

Like NServiceBus, it writes lines into stdout that are no reports.
"""

from __future__ import annotations

import sys

from tests.support.interop.rowpost_endpoint import main

if __name__ == "__main__":
    print("stand-in: this line is the log's, as those of NServiceBus's logger are", flush=True)
    print("stand-in: this one too", file=sys.stderr, flush=True)
    raise SystemExit(main(sys.argv[1:]))
