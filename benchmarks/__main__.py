"""python -m benchmarks: the suite."""

import sys

from benchmarks.suite.program import main

sys.exit(main())
