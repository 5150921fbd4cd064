"""The code of every guide is executed: Python, SQL, environments and calls of rowpost, on the embedded server.

The Python blocks of a guide run in order in one namespace. Where a guide leaves out what its reader already has (imports,
message classes, an open connection), `PRELUDES` provides it. Calls of rowpost run in this process, in order, on a database
where `STAGES` has prepared what the guide talks about. `NOT_RUN` lists every block or call that is not executed, with the
reason.
"""

from __future__ import annotations

import ast
import io
import json
import re
import shlex
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from rowpost.cli.app import app
from rowpost.database.connection import Connection, connect
from rowpost.endpoint.endpoint import Endpoint
from rowpost.handling.context import Context
from rowpost.handling.subscriptions import asks_for_subscription
from rowpost.outbox.declaration import Outbox
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Decision, Failure, Recoverability
from rowpost.sagas import ConflictPolicy, Saga, handles, starts
from rowpost.settings.bridge import load_bridge
from rowpost.settings.environment import Settings, load_settings
from rowpost.testing import deployed, temporary_url
from rowpost.transport.changes import KINDS
from rowpost.transport.queue import Queue
from rowpost.wire import message_types
from rowpost.wire.headers import SUBSCRIPTION_MESSAGE_TYPE
from rowpost.wire.message_types import message_type, type_name
from tests.support.documents import ROOT, Block, blocks, pages, typed_lines

GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
OK, FINDING = 0, 1

#: what is not executed: a text that the block or the call contains, and the reason
NOT_RUN = {
    "docs/guides/archive.md": {
        "pip install": "installs packages",
        "--every": "runs until Ctrl-C; tests/archive/test_exactly_once.py runs it",
    },
    "docs/guides/beside-nservicebus.md": {
        "rowpost run shop.app:billing": "runs until Ctrl-C; tests/cli/test_run_install.py runs an endpoint in this way",
        "make test/dotnet": "needs the .NET SDK; tests/interop runs the scenarios with a stand-in",
    },
    "docs/guides/bridge.md": {
        "rowpost bridge run": "runs until Ctrl-C; tests/cli/test_cli_bridge.py runs it",
    },
    "docs/guides/callbacks.md": {
        "Render(7)": "shows lines of two programs; tests/endpoint/test_callbacks.py runs requests with interim messages",
        "await asyncio": "shows lines of a coroutine; tests/endpoint/test_callbacks.py cancels a request in one",
    },
    "docs/guides/dashboard.md": {
        "rowpost dashboard": "runs until Ctrl-C; tests/cli/test_cli_dashboard.py runs it",
        "pip install": "installs packages",
    },
    "docs/guides/endpoints.md": {
        "rowpost --env production run": "runs until Ctrl-C; tests/endpoint/test_hosting.py runs endpoints in this way",
    },
    "docs/guides/metrics.md": {
        "pip install": "installs packages",
        "rowpost run --metrics": "runs until Ctrl-C; tests/cli/test_cli_metrics.py runs it",
        "curl": "asks a running supervisor; tests/cli/test_cli_metrics.py asks one",
    },
    "docs/guides/sagas.md": {
        "correlate={...}": "shows one method; `...` stands for the mapping of the first block",
    },
    "docs/guides/sql-server-first-day.md": {
        "export ROWPOST_FIRST_DAY_URL": "names a server of the reader",
        "make sqlserver/first-day": "needs that server; tests/first_day/test_first_day.py runs the steps where a T-SQL engine is",
    },
}
NAMES = ("Sales", "Billing", "Billing2", "Mail", "Stock", "Checking", "OrderPolicy", "error", "audit")
# the guides name servers on which other logins work
QUEUES = f"engine: embedded\nroles: cluster\nqueues: {{{', '.join(f'{name}: {{}}' for name in NAMES)}}}\n"


@dataclass
class Stage:
    """What the blocks and calls of a guide work with."""

    database: Connection
    folder: Path
    stack: ExitStack
    url: str

    def rowpost(self, *arguments: object) -> Any:
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    def other_database(self) -> str:
        """The URL of an empty second database of the server, dropped at the end."""
        connection = self.database.driver_connection
        connection.execute("DROP DATABASE IF EXISTS guide_business WITH (FORCE)")
        connection.execute("CREATE DATABASE guide_business")
        self.stack.callback(lambda: connection.execute("DROP DATABASE guide_business WITH (FORCE)"))
        return re.sub(r"^(postgres(?:ql)?://[^/]*/)[^?]*", r"\g<1>guide_business", self.url)

    def environment(self, text: str) -> Settings:
        """Write the environment of the guide, deploy it, and return its settings."""
        (self.folder / "guide.yml").write_text(text, encoding="utf-8")
        applied = self.rowpost("apply")
        assert applied.exit_code == OK, applied.output
        return load_settings(str(self.folder / "guide.yml"))


@pytest.fixture(scope="module")
def empty_server(embedded_url: str) -> str:
    """The embedded server's URL, without what other tests deployed there."""
    with psycopg.connect(embedded_url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS rowpost CASCADE")
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return embedded_url


@pytest.fixture
def stage(data_folder, empty_server, tmp_path, monkeypatch) -> Iterator[Stage]:
    """The guides' queues in the default database of the embedded server, all empty."""
    monkeypatch.setenv("ROWPOST_DATA", str(data_folder))
    monkeypatch.setenv("ROWPOST_ENV", str(tmp_path / "guide.yml"))
    for secret in ("SHOP_PASSWORD", "APP_PASSWORD"):
        monkeypatch.setenv(secret, "secret")
    monkeypatch.chdir(tmp_path)
    for cls in (
        MESSAGES
    ):  # a name belongs to the class that was declared last, and other tests declare some of these names too
        monkeypatch.setitem(message_types._classes, type_name(cls), cls)
    with psycopg.connect(empty_server, autocommit=True) as connection:
        for (name,) in connection.execute(
            "SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public'"
        ).fetchall():
            connection.execute(f"TRUNCATE public.{name}")
    with ExitStack() as stack:
        stage = Stage(None, tmp_path, stack, empty_server)
        settings = stage.environment(QUEUES)
        stage.database = stack.enter_context(connect(settings))
        yield stage


# ---------------------------------------------------------------------------------------------- what readers have
@message_type("Shop.Messages.PlaceOrder")
@dataclass(frozen=True)
class PlaceOrder:
    order_id: int
    skus: tuple[str, ...] = ()


@message_type("Shop.Messages.OrderPlaced")
@dataclass(frozen=True)
class OrderPlaced:
    order_id: int


@message_type("Shop.Messages.ChargeCard")
@dataclass(frozen=True)
class ChargeCard:
    order_id: int


@message_type("Shop.Messages.OrderAccepted")
@dataclass(frozen=True)
class OrderAccepted:
    order_id: int


@message_type("Shop.Messages.CheckLine")
@dataclass(frozen=True)
class CheckLine:
    order_id: int
    sku: str


@message_type("Shop.Messages.LineChecked")
@dataclass(frozen=True)
class LineChecked:
    sku: str
    in_stock: bool


@dataclass
class OrderState:
    order_id: int
    missing: tuple[str, ...] = ()


@message_type("Shop.Messages.ImportCatalogue")
@dataclass(frozen=True)
class ImportCatalogue:
    next_page: int
    pages: int


class ServiceBusy(Exception):
    """A service that a handler calls is overloaded."""


MESSAGES = (PlaceOrder, OrderPlaced, ChargeCard, OrderAccepted, CheckLine, LineChecked)


def common(stage: Stage) -> dict[str, Any]:
    sales = Endpoint("Sales")
    connection = stage.stack.enter_context(psycopg.connect(stage.database.driver_connection.info.dsn, autocommit=True))
    context = stage.stack.enter_context(sales.open(connection))
    return {
        "ChargeCard": ChargeCard, "CheckLine": CheckLine, "ConflictPolicy": ConflictPolicy, "Connection": Connection,
        "Context": Context, "Decision": Decision, "Endpoint": Endpoint, "Failure": Failure, "LineChecked": LineChecked,
        "OrderAccepted": OrderAccepted, "OrderPlaced": OrderPlaced, "OrderState": OrderState, "Outbox": Outbox,
        "PlaceOrder": PlaceOrder, "Recoverability": Recoverability, "Saga": Saga, "ServiceBusy": ServiceBusy,
        "connection": connection, "context": context, "database": stage.database, "handles": handles, "sales": sales,
        "starts": starts, "timedelta": timedelta,
    }  # fmt: skip


def callbacks(stage: Stage) -> dict[str, Any]:
    """A Sales endpoint that answers; its turns are taken while the guide's request waits."""
    import threading

    answering, stopped = Endpoint("Sales"), threading.Event()

    @answering.handles("Shop.Messages.PlaceOrder", PlaceOrder)
    def answer(order: PlaceOrder, context: Context) -> None:
        context.reply(OrderAccepted(order.order_id))

    def work() -> None:
        with connect(load_settings(str(stage.folder / "guide.yml"))) as database:
            while not stopped.wait(0.02):
                answering.process_one(database)

    thread = threading.Thread(target=work)
    thread.start()

    def stop() -> None:
        stopped.set()
        thread.join()

    stage.stack.callback(stop)
    settings = load_settings(str(stage.folder / "guide.yml"))

    def render(web: Endpoint) -> object:
        return web.callbacks().request(PlaceOrder(42), to="Sales", timeout=timedelta(seconds=5))

    return {"load_settings": lambda name: settings, "render": render}


def outbox(stage: Stage) -> dict[str, Any]:
    """A program's connection to the business database, which is deployed."""
    with_outbox(stage)
    settings = load_settings(str(stage.folder / "guide.yml"))
    business = stage.stack.enter_context(psycopg.connect(settings.outboxes[0].url, autocommit=True))
    business.execute("CREATE TABLE placed (id integer)")
    return {"settings": settings, "business_connection": business}


def poolers(stage: Stage) -> dict[str, Any]:
    stage.database.driver_connection.execute("CREATE TABLE orders (order_id bigint NOT NULL)")
    return {}


def publish_subscribe(stage: Stage) -> dict[str, Any]:
    return {"billing": Endpoint("Billing")}


def recoverability(stage: Stage) -> dict[str, Any]:
    from rowpost.errors import MessageNotDeserialized, NoHandler

    return {
        "ImportCatalogue": ImportCatalogue, "MessageNotDeserialized": MessageNotDeserialized, "NoHandler": NoHandler,
    }  # fmt: skip


def with_schedule(stage: Stage) -> None:
    """An environment that has stored the schedule `cleaning`."""
    stage.environment(
        f"{QUEUES}schedules: {{cleaning: {{to: Billing, queue: Sales, type: Shop.Clean, cron: 0 2 * * *}}}}\n"
    )


def schedules(stage: Stage) -> dict[str, Any]:
    """The message of the page."""

    @message_type("Shop.Messages.MakeReport")
    @dataclass(frozen=True)
    class MakeReport:
        day: str

    return {"MakeReport": MakeReport}


def tracing(stage: Stage) -> dict[str, Any]:
    """An environment whose spans are printed, and what was printed."""
    stage.environment(f"{QUEUES}telemetry: {{traces: console}}\n")
    return {"printed": stage.stack.enter_context(redirect_stdout(io.StringIO()))}


def archive(stage: Stage) -> dict[str, Any]:
    """The archive that the page makes first."""
    assert stage.rowpost("archive", "audit", "archive/").exit_code == OK
    return {}


PRELUDES: dict[str, Callable[[Stage], dict[str, Any]]] = {
    "archive.md": archive,
    "callbacks.md": callbacks,
    "outbox.md": outbox,
    "poolers-and-replicas.md": poolers,
    "publish-subscribe.md": publish_subscribe,
    "recoverability.md": recoverability,
    "schedules.md": schedules,
    "tracing.md": tracing,
}


# ---------------------------------------------------------------------------------------------- what must have happened
def check_beside_nservicebus(names: dict[str, Any]) -> None:
    (message,) = Queue("Sales", names["database"]).browse(10)
    assert (message.body, message.headers[SUBSCRIPTION_MESSAGE_TYPE]) == (
        b"",
        "Shop.Messages.OrderPlaced, Shop.Messages",
    )
    assert asks_for_subscription(message.headers)


def check_callbacks(names: dict[str, Any]) -> None:
    names["web"].close()
    assert names["reply"] == OrderAccepted(42)


def check_endpoints(names: dict[str, Any]) -> None:
    names["sales"].close()
    assert names["outcome"].kind is Kind.HANDLED


def check_schedules(names: dict[str, Any]) -> None:
    names["test_a_report_is_made_of_each_night"]()
    assert [each.name for each in names["reports"].schedules] == ["Reports.nightly", "Reports.poll"]


def check_tests_of_your_own(names: dict[str, Any]) -> None:
    names["test_a_card_is_charged"]()
    with temporary_url() as url, deployed(url, names["sales"]) as database:
        names["test_an_order_is_placed"](lambda *_: database)


def check_outbox(names: dict[str, Any]) -> None:
    names["sales"].close()
    assert names["business_connection"].execute("SELECT id FROM placed").fetchall() == [(42,)]
    assert [message.body for message in Queue("Billing", names["database"]).browse(10)] == [b'{"OrderId":42}']


def check_poolers(names: dict[str, Any]) -> None:
    assert [message.body for message in names["Queue"]("Sales", names["database"]).browse(10)] == [b'{"OrderId": 42}']


def check_recoverability(names: dict[str, Any]) -> None:
    def policy(error: Exception, attempts: int) -> object:
        return names["policy"](Failure(error, attempts, 0, {}))

    assert policy(ServiceBusy(), 1) == timedelta(minutes=5)
    assert (policy(ValueError(), 1), policy(ValueError(), 3)) == (Decision.RETRY, Decision.ERROR)


def check_tracing(names: dict[str, Any]) -> None:
    spans = [json.loads(line) for line in names["printed"].getvalue().splitlines()]
    shown = next(block for block in blocks(ROOT / "docs" / "guides" / "tracing.md") if block.language == "text")
    assert [span["name"] for span in spans] == re.findall(r'"name": "(.*?)"', shown.text)
    assert len({span["context"]["trace_id"] for span in spans}) == 1


CHECKS: dict[str, Callable[[dict[str, Any]], None]] = {
    "beside-nservicebus.md": check_beside_nservicebus,
    "callbacks.md": check_callbacks,
    "endpoints.md": check_endpoints,
    "outbox.md": check_outbox,
    "poolers-and-replicas.md": check_poolers,
    "recoverability.md": check_recoverability,
    "schedules.md": check_schedules,
    "tests-of-your-own.md": check_tests_of_your_own,
    "tracing.md": check_tracing,
}


# ---------------------------------------------------------------------------------------------- Python and SQL
def not_run(block: Block, text: str) -> str | None:
    """Why this is not executed; None if it is."""
    if Path(block.page).name.startswith("spark"):
        return "starts Spark; tests/spark/test_guide_commands.py and test_guide_recipes.py execute it"
    if block.example:
        return "part of an example, which tests/examples execute; test_excerpts.py compares it"
    return next((reason for part, reason in NOT_RUN.get(block.page, {}).items() if part in text), None)


def module(guide: str, names: dict[str, Any]) -> dict[str, Any]:
    """The namespace of a new module, because dataclasses and sagas look up the module of their annotations."""
    made = types.ModuleType(f"guide_{guide.replace('-', '_')}")
    sys.modules[made.__name__] = made
    made.__dict__.update(names)
    return made.__dict__


def run(block: Block, names: dict[str, Any]) -> None:
    """Execute a block."""
    exec(compile(block.text, f"<{block.name}>", "exec"), names)


@pytest.mark.parametrize(
    "guide", [guide for guide in GUIDES if any(b.language == "python" for b in blocks(guide))], ids=lambda p: p.stem
)
def test_the_guides_python_runs(guide: Path, stage: Stage):
    names = module(guide.stem, common(stage) | PRELUDES.get(guide.name, lambda _: {})(stage))
    executed = 0

    for block in blocks(guide):
        if block.language != "python":
            continue
        if not_run(block, block.text):
            ast.parse(block.text)
            continue
        run(block, names)
        executed += 1

    assert executed or all(not_run(block, block.text) for block in blocks(guide) if block.language == "python")
    CHECKS.get(guide.name, lambda _: None)(names)


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_block_of_a_page_is_found_where_it_is_part_of_a_list_too(page: Path):
    fences = re.findall(r"^[ >*-]*```", page.read_text(encoding="utf-8"), re.MULTILINE)

    assert len(fences) == 2 * len(blocks(page))


# ---------------------------------------------------------------------------------------------- environments
YAML = [block for page in pages() for block in blocks(page) if block.language == "yaml" and not block.example]


@pytest.mark.parametrize("block", YAML, ids=lambda block: block.name)
def test_the_guides_environments_and_files_can_be_read(block: Block, tmp_path: Path, monkeypatch):
    for secret in re.findall(r"\$\{(\w+)\}", block.text):
        monkeypatch.setenv(secret, "secret")
    path = tmp_path / "guide.yml"
    path.write_text(block.text, encoding="utf-8")

    if re.search(r"^rules:", block.text, re.MULTILINE):
        from rowpost.spark.jobs.retain import read_policy

        assert read_policy(path)
    elif re.search(r"^sides:", block.text, re.MULTILINE):
        monkeypatch.setenv("ROWPOST_ENVIRONMENTS", str(tmp_path))
        for name in re.findall(r"environment: (\w+)", block.text):
            (tmp_path / f"{name}.yml").write_text(
                f'engine: postgresql\nurl: "postgresql://app@db01/{name}"\n', encoding="utf-8"
            )
        assert load_bridge(path).sides
    else:
        if not re.search(r"^engine:", block.text, re.MULTILINE):
            path.write_text(f"engine: embedded\n{block.text}", encoding="utf-8")
        assert load_settings(str(path)).engine in ("postgresql", "sqlserver")


# ---------------------------------------------------------------------------------------------- calls of rowpost
def with_outbox(stage: Stage) -> None:
    sagas = "sagas: {Sales_OrderPolicy: {correlation: OrderId, outbox: business}}\n"
    stage.environment(f'{QUEUES}outbox: {{business: {{url: "{stage.other_database()}"}}}}\n{sagas}')


def with_bridge(stage: Stage) -> None:
    """The guide's file, and its environments on two databases of the server."""
    folder = stage.folder / "deploy" / "environments"
    folder.mkdir(parents=True)
    for name, url in (("shop", stage.url), ("warehouse", stage.other_database())):
        (folder / f"{name}.yml").write_text(
            f'engine: postgresql\nurl: "{url}"\nqueues: {{error: {{}}}}\n', encoding="utf-8"
        )
    (stage.folder / "bridge.yml").write_text(blocks(ROOT / "docs" / "guides" / "bridge.md")[0].text, encoding="utf-8")


def with_participant(stage: Stage) -> None:
    stage.environment(f'{QUEUES}participants: {{shop: {{url: "{stage.other_database()}"}}}}\n')


def with_failed_messages(stage: Stage) -> None:
    """Four messages of the type that the guide retries, and four of another one, all failed in Billing."""
    billing = Endpoint("Billing", recoverability=Recoverability(immediate_retries=0, delayed_retries=0))

    def fail(message: Any, context: Context) -> None:
        raise TimeoutError("no answer")

    billing.handles("Shop.Messages.ChargeCard", ChargeCard)(fail)
    billing.handles("Shop.Messages.OrderPlaced", OrderPlaced)(fail)
    with billing.open(stage.database) as bus:
        for number in range(4):
            bus.send(ChargeCard(number), to="Billing")
            bus.send(OrderPlaced(number), to="Billing")
    for _ in range(8):
        assert billing.process_one(stage.database).kind is not Kind.EMPTY
    (stage.folder / "mended.json").write_text('{"OrderId": 1}', encoding="utf-8")


def with_saga(stage: Stage) -> None:
    stage.environment(f"{QUEUES}sagas: {{Sales_OrderPolicy: {{correlation: OrderId, type: string}}}}\n")
    names = module("sagas", {})
    run(blocks(ROOT / "docs" / "guides" / "sagas.md")[0], names)
    sales = names["sales"]
    with sales.open(stage.database) as bus:
        bus.send(names["PlaceOrder"]("A1", 500), to="Sales")
    assert sales.process_one(stage.database).kind is Kind.HANDLED


STAGES: dict[str, Callable[[Stage], None]] = {
    "bridge.md": with_bridge,
    "outbox.md": with_outbox,
    "recoverability.md": with_failed_messages,
    "sagas.md": with_saga,
    "schedules.md": with_schedule,
    "transactions.md": with_participant,
}


def arguments_of(line: str, stage: Stage) -> list[str]:
    """The call's arguments, with the rows that are there for the guide's, and --yes where it would ask."""
    rows = iter([str(row.row_version) for row in Queue("error", stage.database).browse(10)])
    arguments = [next(rows) if re.fullmatch(r"47\d\d", word) else word for word in shlex.split(line, comments=True)[1:]]
    asks = arguments[:2] in (*(["errors", f"{kind}-all"] for kind in KINDS), ["errors", "discard"], ["queue", "purge"])
    return [*arguments, "--yes"] if asks else arguments


WITH_CALLS = [guide for guide in GUIDES if any(typed_lines(block) for block in blocks(guide))]


@pytest.mark.parametrize("guide", WITH_CALLS, ids=lambda path: path.stem)
def test_the_guides_calls_of_rowpost_run(guide: Path, stage: Stage):
    STAGES.get(guide.name, lambda _: None)(stage)

    failed, run_calls = {}, 0
    for block in blocks(guide):
        for line in typed_lines(block):
            if not_run(block, line):
                continue
            ended = stage.rowpost(*arguments_of(line, stage))
            run_calls += 1
            if ended.exit_code not in (OK, FINDING):
                failed[line] = ended.output

    assert failed == {}
    assert run_calls or all(not_run(block, line) for block in blocks(guide) for line in typed_lines(block))


SQL = [(guide, block) for guide in GUIDES for block in blocks(guide) if block.language == "sql"]


@pytest.mark.parametrize(("guide", "block"), SQL, ids=lambda each: getattr(each, "name", ""))
def test_the_guides_queries_find_what_the_guide_stored(guide: Path, block: Block, stage: Stage):
    STAGES[guide.name](stage)

    assert len(stage.database.driver_connection.execute(block.text).fetchall()) == 1


def test_what_is_not_run_is_still_in_its_guide():
    stale = [
        f"{page}: {part}"
        for page, parts in NOT_RUN.items()
        for part in parts
        if part not in (ROOT / page).read_text(encoding="utf-8")
    ]

    assert stale == []
