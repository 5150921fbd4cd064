"""Archive a queue under spark-submit: the main file of deploy/spark/sparkapplication.yaml, and of YARN and EMR.

    spark-submit archive.py QUEUE DIR CHECKPOINT [INTERVAL]

The environment variable ROWPOST_ENV names the environment, as for the commands of rowpost. Without an interval, such as
"30 seconds", the current messages are archived.
"""

import sys

from rowpost.spark.jobs.archive import ArchiveJob, run
from rowpost.spark.session import session


def main(queue: str, folder: str, checkpoint: str, every: str | None = None) -> None:
    spark = session("rowpost archive")
    print(run(spark, ArchiveJob(queue, folder, every=every, checkpoint=checkpoint)))


if __name__ == "__main__":
    main(*sys.argv[1:])
