"""python -m examples.shop [--port 8080] [--ci]"""

from __future__ import annotations

import argparse
import sys
import threading
from contextlib import closing

from examples.shop.session import play
from examples.shop.stage import Shop
from examples.shop.web import make_server, web

from rowpost import Supervisor
from rowpost.workers.events import Event


def main() -> int | str:
    """Run the shop until Ctrl-C. With --ci, run a scripted session and exit with 0 if all checks pass."""
    parser = argparse.ArgumentParser(prog="python -m examples.shop", description=main.__doc__)
    parser.add_argument("--port", type=int, default=8080, help="port of the web form on 127.0.0.1")
    parser.add_argument("--ci", action="store_true", help="delete the shop's data, run a scripted session, then exit")
    arguments = parser.parse_args()
    shop = Shop()
    shop.set_up(fresh=arguments.ci)
    supervisor = Supervisor(shop.settings, _print_event)
    try:
        made = make_server(shop, 0 if arguments.ci else arguments.port)
    except OSError as error:
        web.close()
        return f"The shop cannot use port {arguments.port}: {error.strerror}. Name another one: --port {arguments.port + 1}"
    with closing(web), made as server:
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
    """Run the session in a thread, and the supervisor in the main thread, which receives signals."""
    failures: list[BaseException] = []

    def visit() -> None:
        try:
            play(address, shop, lambda text: print(text, flush=True))
        except BaseException as error:  # noqa: BLE001 -- printed below
            failures.append(error)
        finally:
            supervisor.stop()

    visitor = threading.Thread(target=visit)
    visitor.start()
    supervisor.run()
    visitor.join()
    for error in failures:
        print(f"FAILED  {type(error).__name__}: {error}", file=sys.stderr)
    print("failed" if failures else "all checks passed")
    return 1 if failures else 0


def _print_event(event: Event) -> None:
    if not event.frequent:
        print(f"    {event}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
