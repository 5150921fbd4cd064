"""python -m examples.flow [--orders 60] [--out DIR]"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from contextlib import closing
from pathlib import Path

from examples.flow.story import Story
from examples.shop.stage import Shop
from examples.shop.web import web

from rowpost import RowpostError, Supervisor
from rowpost.spark.session import session


def main() -> int:
    """Delete the shop's data, run the story, and exit with 0 if all checks pass."""
    parser = argparse.ArgumentParser(prog="python -m examples.flow", description=main.__doc__)
    parser.add_argument(
        "--orders",
        type=int,
        default=60,
        choices=range(1, 101),
        metavar="N",
        help="number of orders, 1 to 100; one in six with a blocked card",
    )
    parser.add_argument("--out", type=Path, help="a new folder for the archive; default: a temporary folder")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rowpost-flow-") as folder:
        out = arguments.out or Path(folder)
        if out.exists() and any(out.iterdir()) and arguments.out:
            parser.error(f"{out} is not empty: name a new folder")
        return _play(arguments.orders, out)


def _play(orders: int, out: Path) -> int:
    """Run the story in a thread, and the supervisor in the main thread, which receives signals."""
    shop = Shop()
    shop.set_up(fresh=True)
    print("Spark starts ...", flush=True)
    spark = session("rowpost example flow", config={"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"})
    supervisor = Supervisor(shop.settings, lambda event: None)
    failures: list[BaseException] = []

    def run_story() -> None:
        try:
            web.callbacks(shop.settings).start()
            Story(shop, spark, out, lambda text: print(text, flush=True)).play(orders)
        except BaseException as error:  # noqa: BLE001 -- printed below
            failures.append(error)
        finally:
            supervisor.stop()

    with closing(web):
        story_thread = threading.Thread(target=run_story)
        story_thread.start()
        supervisor.run()
        story_thread.join()
    spark.stop()
    for error in failures:
        words = str(error) if isinstance(error, RowpostError | AssertionError) else f"{type(error).__name__}: {error}"
        print(f"FAILED  {words}", file=sys.stderr)
    print("failed" if failures else "all checks passed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
