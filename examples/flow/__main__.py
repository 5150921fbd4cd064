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

from rowpost.errors import RowpostError
from rowpost.spark.session import session
from rowpost.workers.supervisor import Supervisor


def main() -> int:
    """Plays the story in a shop without history, and tells whether all was right."""
    parser = argparse.ArgumentParser(prog="python -m examples.flow", description=main.__doc__)
    parser.add_argument("--orders", type=int, default=60, choices=range(1, 101), metavar="N", help="so many orders, 100 at most; one in six on a blocked card")
    parser.add_argument("--out", type=Path, help="a new folder for the archive and the pictures; by default one that goes afterwards")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rowpost-flow-") as folder:
        out = arguments.out or Path(folder)
        if out.exists() and any(out.iterdir()) and arguments.out:
            parser.error(f"{out} holds something: name a new folder")
        return _play(arguments.orders, out)


def _play(orders: int, out: Path) -> int:
    """The story in a thread; the supervisor here, where signals arrive."""
    shop = Shop()
    shop.set_up(fresh=True)
    print("Spark starts ...", flush=True)
    spark = session("rowpost example flow", config={"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"})
    supervisor = Supervisor(shop.settings, lambda event: None)
    went_wrong: list[BaseException] = []

    def tell() -> None:
        try:
            web.callbacks(shop.settings).start()
            Story(shop, spark, out, lambda text: print(text, flush=True)).play(orders)
        except BaseException as error:  # noqa: BLE001 -- told below
            went_wrong.append(error)
        finally:
            supervisor.stop()

    with closing(web):
        teller = threading.Thread(target=tell)
        teller.start()
        supervisor.run()
        teller.join()
    spark.stop()
    for error in went_wrong:
        words = str(error) if isinstance(error, RowpostError | AssertionError) else f"{type(error).__name__}: {error}"
        print(f"WRONG  {words}", file=sys.stderr)
    print("wrong" if went_wrong else "all is right")
    return 1 if went_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
