"""Each recipe of the guide is executed as its page shows it, in a folder with what the recipe reads."""

import json
import re
import uuid
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.support.documents import ROOT
from tests.support.spark.archives import ArchiveMaker
from tests.support.spark.messages import NOON, audit_row, error_row

PAGE = (ROOT / "docs" / "guides" / "spark-recipes.md").read_text(encoding="utf-8")
RECIPES = {
    title.strip(): re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    for title, text in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
}
ORDER = "Shop.Messages.PlaceOrder, Shop"


@pytest.fixture
def archive(tmp_path, monkeypatch) -> ArchiveMaker:
    """The archive `archive/` in the current folder."""
    monkeypatch.chdir(tmp_path)
    made = ArchiveMaker(tmp_path / "made")
    made.address = str(tmp_path / "archive")
    return made


@pytest.fixture
def recipe(spark, tmp_path) -> Callable[..., dict[str, Any]]:
    """Execute the blocks of a recipe, with names of queues in place of the page's, and its folders in an empty folder. Returns its variables."""

    def run(title: str, queues: Any = None, url: str = "", **places: str) -> dict[str, Any]:
        names: dict[str, Any] = {"spark": spark, "url": url}
        for text in RECIPES[title]:
            text = re.sub(
                r'"(?=[\w/.-]+(?:/|\.parquet)")', f'"{tmp_path}/', text
            )  # the JVM has a current folder of its own
            for name, queue in places.items():
                text = text.replace(
                    f'.option("queue", "{name}")',
                    f'.option("queue", "{queue}").option("environment", {queues.environment!r})',
                )
            exec(compile(text, f"<{title}>", "exec"), names)
        return names

    return run


def test_quality(archive, recipe, tmp_path):
    bodies = [
        {"OrderId": 1, "Amount": 7},
        {"OrderId": 2, "Amount": 2000},
        {"OrderId": 3, "Amount": 5},
        {"OrderId": 3, "Amount": None, "New": 1},
    ]
    archive.batch(
        0,
        [
            audit_row(f"m{n}", body=json.dumps(body).encode(), EnclosedMessageTypes=ORDER)
            for n, body in enumerate(bodies)
        ],
    )
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "Shop.Messages.PlaceOrder.ddl").write_text("OrderId BIGINT, Amount BIGINT")

    failing = recipe("Check the quality of messages")["failing"]

    found = {row.message_id: row.failed_rules for row in failing.collect()}
    twice = "one message for each order"
    assert found == {"m1": ["amount"], "m2": [twice], "m3": [twice, "nothing is left over"]}


def test_service_targets(archive, recipe):
    slow = [audit_row(f"s{n}", waited=3.0 if n < 2 else 0.1, ProcessingEndpoint="Shop.Sales") for n in range(100)]
    fast = [
        audit_row(f"f{n}", waited=3.0 if n < 1 else 0.1, ProcessingEndpoint="Shop.Sales", EnclosedMessageTypes=ORDER)
        for n in range(101)
    ]
    failed = [
        audit_row("b", waited=0.0, took=0.1, ProcessingEndpoint="Shop.Billing"),
        error_row("e", ProcessingEndpoint="Shop.Billing"),
    ]
    archive.batch(0, [*slow, *fast, *failed])

    breaches = recipe("Measure service targets")["breaches"].collect()

    assert [(row.endpoint, row.message_type, row.messages, row.failed) for row in breaches] == [
        ("Shop.Billing", "Shop.PlaceOrder", 1, 1),
        ("Shop.Sales", "Shop.PlaceOrder", 100, 0),
    ]


def test_a_picture_of_the_metrics(archive, recipe, tmp_path):
    archive.batch(
        0, [audit_row("m1"), audit_row("m2", sent=NOON + timedelta(hours=2)), audit_row("m3", ProcessingEndpoint=None)]
    )

    axes = recipe("Draw metrics")["figure"].axes

    assert [[(line.get_label(), list(line.get_ydata())) for line in each.lines] for each in axes] == [
        [("(none)", [1]), ("Sales", [1, 1])], [("(none)", [1.5]), ("Sales", [1.5, 1.5])],
    ]  # fmt: skip
    assert (tmp_path / "flow.png").read_bytes().startswith(b"\x89PNG")


def test_rows_are_loaded_once(spark, queues, recipe, tmp_path):
    spark.range(20).selectExpr("id AS order_id", "id * 2 AS amount").write.parquet(f"{tmp_path}/orders.parquet")
    sales = queues.make()

    for _ in range(2):
        recipe("Load rows into a queue", queues, Sales=sales)

    with queues.connect() as database:
        rows = database.driver_connection.execute(f'SELECT id, headers, body FROM public."{sales}"').fetchall()
    namespace = uuid.uuid5(uuid.NAMESPACE_OID, "rowpost load import-1")
    bodies = {row[0]: json.loads(bytes(row[2])) for row in rows}
    assert len(rows) == 20 and bodies == {
        uuid.uuid5(namespace, str(n)): {"order_id": n, "amount": 2 * n} for n in range(20)
    }
    assert Counter(json.loads(row[1])["NServiceBus.EnclosedMessageTypes"] for row in rows) == {
        "Shop.Messages.PlaceOrder": 20
    }
    assert all(json.loads(row[1])["NServiceBus.MessageId"] == str(row[0]) for row in rows)


@pytest.fixture
def repeated(tmp_path) -> Callable[[], None]:
    """Take a stream back to the moment before Spark has logged its last batch, as a kill would."""

    def take_back() -> None:
        commits = tmp_path / "checkpoint" / "commits"
        last = max(int(each.name) for each in commits.iterdir() if each.name.isdecimal())
        for each in (commits / str(last), commits / f".{last}.crc"):
            each.unlink(missing_ok=True)

    return take_back


def test_a_stream_writes_to_a_delta_table_once(queues, recipe, repeated, tmp_path):
    audit = queues.make()
    queues.send(audit, [b'{"OrderId": %d}' % n for n in range(5)])

    def written() -> list[str]:
        recipe("Write a stream to your own Delta table, exactly once", queues, audit=audit)
        return sorted(row["order_id"] for row in DeltaTable(tmp_path / "orders").to_pyarrow_table().to_pylist())

    assert written() == list("01234")
    repeated()
    queues.send(audit, [b'{"OrderId": 5}'])
    assert written() == list("012345")


def test_a_stream_writes_to_a_jdbc_table_once(spark, queues, recipe, repeated, tmp_path):
    audit, url = queues.make(), f"jdbc:derby:{tmp_path}/derby;create=true"
    queues.send(audit, [b"%d" % n for n in range(5)])
    spark._jvm.java.lang.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))
    connection = spark._jvm.java.sql.DriverManager.getConnection(url)
    connection.createStatement().execute(re.search(r"^CREATE TABLE orders .*$", PAGE, re.MULTILINE)[0])
    connection.close()

    def written() -> list[str]:
        recipe("Write a stream to a JDBC table, exactly once", queues, url, audit=audit)
        return sorted(row.BODY for row in spark.read.jdbc(url, "orders").collect())

    assert written() == list("01234")
    repeated()
    queues.send(audit, [b"5"])
    assert written() == list("012345")


def test_a_stream_writes_to_a_queue_beside_a_table_once(queues, recipe, repeated, tmp_path):
    error, support = queues.make(), queues.make()
    for n in range(3):
        queues.send(error, [b"{}"], error_row(f"m{n}")[5])

    def written() -> tuple[list[str], list[str]]:
        recipe("Write a stream to a queue beside a table", queues, error=error, Support=support)
        table = DeltaTable(tmp_path / "failed").to_pyarrow_table().to_pylist()
        with queues.connect() as database:
            sent = [
                json.loads(body)
                for (body,) in database.driver_connection.execute(f'SELECT body FROM public."{support}"').fetchall()
            ]
        return sorted(row["message_id"] for row in table), sorted(each["message_id"] for each in sent)

    assert written() == (["m0", "m1", "m2"], ["m0", "m1", "m2"])
    repeated()
    queues.send(error, [b"{}"], error_row("m3")[5])
    assert written() == (["m0", "m1", "m2", "m3"], ["m0", "m1", "m2", "m3"])


def test_every_recipe_is_run():
    run = re.findall(r'recipe\("(.*?)"', Path(__file__).read_text(encoding="utf-8"))

    assert sorted(run) == sorted(title for title, code in RECIPES.items() if code)
