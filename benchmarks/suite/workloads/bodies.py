"""Bodies: from half a kilobyte to a megabyte.

One connection makes calls with one message and one durable commit each. The text compresses badly. pgmq stores JSON and
gets the same text as a JSON string.
"""

from __future__ import annotations

import base64
import json
import random
import time
from functools import partial

import psycopg

from benchmarks.suite.figures import OURS, Contender, Line, Lines, Round, Scale, Target, take_turns
from benchmarks.suite.peers import PeerFailed, pgmq_script
from benchmarks.suite.server import Place, Server

WITH_PEERS = True
SIZES = {"0.5 KB": 512, "4 KB": 4096, "32 KB": 32_768, "256 KB": 262_144, "1 MB": 1_048_576}
MAX_ROUND_BYTES = 24 * 1024 * 1024
DOES = {
    "send": "one durable transaction a message",
    "receive": "removal in one transaction: at most once for what comes after it",
}
JSON = ", as JSON"


def measure(server: Server, scale: Scale) -> list[Line]:
    lines = []
    with server.place("bodies", "Bench") as place:
        try:
            place.sql(pgmq_script())
            place.sql("SELECT pgmq.create('bench')")
            missing = ""
        except PeerFailed as error:
            missing = str(error)
        for size, octets in SIZES.items():
            text = base64.b64encode(random.Random(octets).randbytes(octets * 3 // 4)).decode()
            for verb, does in DOES.items():
                contenders = [Contender(OURS, partial(_ours, place, verb, text, scale), does)]
                if not missing:
                    contenders.append(Contender("pgmq", partial(_pgmq, place, verb, text, scale), does + JSON))
                lines += take_turns(f"{verb} {size}", contenders, scale.rounds)
                if missing:
                    lines.append(Line(f"{verb} {size}", "pgmq", error=missing))
    return lines


def _calls(text: str, scale: Scale) -> int:
    return max(3, int(min(1000, MAX_ROUND_BYTES // len(text)) * scale.seconds))


def _rate(count: int, started: float, text: str) -> Round:
    rate = count / (time.perf_counter() - started)
    return Round(rate, {"MB/s": rate * len(text) / 1e6})


def _ours(place: Place, verb: str, text: str, scale: Scale) -> Round:
    count, queue, body = _calls(text, scale), place.queue("Bench"), text.encode()
    place.sql('TRUNCATE "Bench"')
    if verb == "receive":
        place.fill("Bench", count, body)
    place.tidy('"Bench"')
    started = time.perf_counter()
    for _ in range(count):
        if verb == "send":
            queue.send(body)
        elif not queue.receive():
            raise RuntimeError("nothing was received: the benchmark is wrong")
    return _rate(count, started, text)


def _pgmq(place: Place, verb: str, text: str, scale: Scale) -> Round:
    count, body = _calls(text, scale), json.dumps(text)
    place.sql("TRUNCATE pgmq.q_bench")
    with psycopg.connect(place.url, autocommit=True) as connection:
        if verb == "receive":
            connection.execute(
                "INSERT INTO pgmq.q_bench (vt, message) SELECT clock_timestamp(), %s::jsonb FROM generate_series(1, %s)",
                [body, count],
            )
        place.tidy("pgmq.q_bench")
        execute = partial(connection.cursor(binary=True).execute, prepare=True)
        started = time.perf_counter()
        for _ in range(count):
            if verb == "send":
                execute("SELECT pgmq.send('bench', %s::jsonb)", [body]).fetchone()
            elif not execute("SELECT * FROM pgmq.pop('bench', 1)").fetchall():
                raise RuntimeError("nothing was received: the benchmark is wrong")
        return _rate(count, started, text)


def targets(lines: Lines) -> list[Target]:
    return []
