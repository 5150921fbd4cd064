"""python -m examples.shop [--port 8080] [--ci]"""

from __future__ import annotations

import argparse
import sys
import threading
from contextlib import closing

from examples.shop.session import play
from examples.shop.stage import Shop
from examples.shop.web import make_server, web

from rowpost.cli.run.event_text import describe_event
from rowpost.workers.events import Event
from rowpost.workers.supervisor import Supervisor


def main() -> int:
    """Runs the shop until Ctrl-C; with --ci one scripted session, and tells whether all was right."""
    parser = argparse.ArgumentParser(prog="python -m examples.shop", description=main.__doc__)
    parser.add_argument("--port", type=int, default=8080, help="of the web form, on 127.0.0.1")
    parser.add_argument("--ci", action="store_true", help="play a scripted session in a shop without history, then leave")
    arguments = parser.parse_args()
    shop = Shop()
    shop.set_up(fresh=arguments.ci)
    supervisor = Supervisor(shop.settings, _tell)
    with closing(web), make_server(shop, 0 if arguments.ci else arguments.port) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        print(f"The shop is open: {address}", flush=True)
        try:
            return _session(supervisor, address, shop) if arguments.ci else _work(supervisor)
        finally:
            server.shutdown()


def _work(supervisor: Supervisor) -> int:
    supervisor.run()
    return 0


def _session(supervisor: Supervisor, address: str, shop: Shop) -> int:
    """The session in a thread; the supervisor here, where signals arrive."""
    went_wrong: list[BaseException] = []

    def visit() -> None:
        try:
            play(address, shop, lambda text: print(text, flush=True))
        except BaseException as error:  # noqa: BLE001 -- told below
            went_wrong.append(error)
        finally:
            supervisor.stop()

    visitor = threading.Thread(target=visit)
    visitor.start()
    supervisor.run()
    visitor.join()
    for error in went_wrong:
        print(f"WRONG  {type(error).__name__}: {error}", file=sys.stderr)
    print("wrong" if went_wrong else "all is right")
    return 1 if went_wrong else 0


def _tell(event: Event) -> None:
    text = describe_event(event)
    if text is not None:
        print(f"    {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
