"""How late delayed messages are, from the time when each was due to the end of its handler, beside the promised bound.

    python benchmarks/delayed.py [--messages 300] [--seconds 10] [--output benchmarks/results/delayed.json]

Another process than the supervisor stores the messages, each due at a random time of the next seconds, so that nothing
but the table tells the mover. Rounds with two bounds (`delayed_lateness`) on one embedded PostgreSQL. The reference,
whose back-off knows only what its own process stored, may be up to a minute late.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import threading
from pathlib import Path

HANDLERS = Path(__file__).parent / "handlers"
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HANDLERS), os.environ.get("PYTHONPATH")]))
sys.path.append(str(HANDLERS))

from rowpost import embedded
from rowpost.database import Database, connect_url
from rowpost.deploy import apply
from rowpost.plan import plan
from rowpost.queue import Queue
from rowpost.settings import QueueSettings, Settings, SupervisorSettings, WorkerSettings
from rowpost.supervisor import Supervisor

NAME = "Late"
BOUNDS = (1.0, 0.2)  # seconds
STORING = 5.0  # seconds, in which all are stored before the first is due


def store(database: Database, messages: int, seconds: float) -> None:
    """Delays messages by random times, and writes down when the server says that each is due."""
    for number in range(messages):
        delay = int(random.uniform(STORING, STORING + seconds) * 1000)
        database.call("delay_message", NAME, headers="", body=b"%d" % number, delay_ms=delay)
    database.connection.execute(
        f"CREATE TABLE due AS SELECT convert_from(body, 'UTF8')::integer AS number, due AS at FROM \"{NAME}.Delayed\""
    )


def measure(url: str, bound: float, messages: int, seconds: float) -> dict[str, float]:
    """One round; milliseconds, and the worst as a share of the bound."""
    settings = Settings(
        url=url,
        queues=(QueueSettings(NAME, worker=WorkerSettings("lateness:note", limit=2, peek_delay=0.1)), QueueSettings("error")),
        supervisor=SupervisorSettings(delayed_lateness=bound),
    )
    with connect_url("postgresql", url) as database:
        apply(database, plan(settings))
        database.connection.execute("DROP TABLE IF EXISTS handled, due")
        database.connection.execute("CREATE TABLE handled (number integer, at timestamp)")
        supervisor = Supervisor(settings)
        thread = threading.Thread(target=supervisor.run)
        thread.start()

        def wait_for(number: int) -> None:
            while thread.is_alive() and database.connection.execute("SELECT count(*) FROM handled").fetchone()[0] < number:
                thread.join(0.2)

        Queue(NAME, database).send(b"-1")
        wait_for(1)  # the supervisor and a worker have started
        store(database, messages, seconds)
        wait_for(messages + 1)
        supervisor.stop()
        thread.join()
        rows = database.connection.execute(
            "SELECT extract(epoch FROM handled.at - due.at)::float8 * 1000 FROM handled JOIN due USING (number)"
        ).fetchall()
    late = sorted(row[0] for row in rows)
    if len(late) != messages:
        raise SystemExit(f"{messages} messages were delayed, and {len(late)} handled")
    return {
        "bound_ms": bound * 1000,
        "p50_ms": round(statistics.median(late), 1),
        "p99_ms": round(late[int(len(late) * 0.99)], 1),
        "worst_ms": round(late[-1], 1),
        "earliest_ms": round(late[0], 1),
        "worst_of_bound": round(late[-1] / (bound * 1000), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=10.0, help="messages are due within so many seconds")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rowpost-delayed-") as folder:
        url = embedded.start(Path(folder))
        try:
            rounds = [measure(url, bound, options.messages, options.seconds) for bound in BOUNDS]
        finally:
            embedded.stop(Path(folder))
    text = json.dumps({"messages": options.messages, "rounds": rounds}, indent=2)
    print(text)
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(text + "\n", encoding="utf-8")
    never_early = all(each["earliest_ms"] >= 0 for each in rounds)
    raise SystemExit(0 if never_early and rounds[0]["worst_of_bound"] <= 1 else 1)


if __name__ == "__main__":
    main()
