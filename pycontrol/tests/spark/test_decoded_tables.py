"""A table of each message type: each message once, whatever happens between two runs; erased with the archive."""

import json
import shutil
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from deltalake import DeltaTable

from rowpost.archive.folder import ArchiveFolder
from rowpost.archive.merging import compact
from rowpost.archive.table import ArchiveTable, open_table
from rowpost.errors import SparkFailed
from rowpost.spark.bodies.schema_files import file_name, read_schemas
from rowpost.spark.jobs import decode, erase
from rowpost.spark.jobs.verify import contains
from tests.support.spark.archives import ArchiveMaker, archived_rows
from tests.support.spark.messages import NOON, audit_row

ORDER = "Shop.PlaceOrder"
DDL = "OrderId BIGINT,\nCustomer STRING,\nLines ARRAY<STRUCT<Sku: STRING>>"
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def order(number: int, customer: str = "Ada", day: int = 0, **fields: object) -> tuple:
    body = {"OrderId": number, "Customer": customer, **fields}
    return audit_row(f"m{number}", sent=NOON + timedelta(days=day), body=json.dumps(body).encode())


class Shop:
    """An archive, a folder of schemas, and `decode`, which returns what a run did for ORDER."""

    def __init__(self, spark, made: ArchiveMaker) -> None:
        self.spark, self.made, self.path, self.out, self.folder = (
            spark,
            made,
            made.address,
            made.folder / "decoded",
            made.folder / "schemas",
        )

    def schema(self, text: str, name: str = ORDER) -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / f"{name}.ddl").write_text(text)

    def decode(self) -> decode.Decoded:
        done = decode.run(self.spark, self.path, str(self.out), read_schemas(self.folder))["tables"]
        return next(each for each in done if each.message_type == ORDER)

    def rows(self, name: str = ORDER):
        return sorted(DeltaTable(self.out / name).to_pyarrow_table().to_pylist(), key=lambda row: row["message_id"])


@pytest.fixture(scope="module")
def archived(spark, tmp_path_factory) -> Shop:
    """Two batches, of which nothing is decoded."""
    shop = Shop(spark, ArchiveMaker(tmp_path_factory.mktemp("archived")))
    shop.schema(DDL)
    shop.made.batch(0, [order(1), order(2, day=1)])
    shop.made.batch(1, [order(3, Extra=5), audit_row("p", body=b'{"OrderId": 1}', EnclosedMessageTypes="Shop.Paid")])
    return shop


@pytest.fixture(scope="module")
def decoded(spark, archived, tmp_path_factory) -> Shop:
    """The same, decoded."""
    shop = Shop(spark, archived.made.copy(tmp_path_factory.mktemp("decoded") / "made"))
    assert shop.decode().added == 3
    return shop


@pytest.fixture
def fresh(spark, archived, tmp_path) -> Shop:
    """A copy for one test, of which nothing is decoded."""
    return Shop(spark, archived.made.copy(tmp_path / "made"))


@pytest.fixture
def shop(spark, decoded, tmp_path) -> Shop:
    """A copy for one test, decoded."""
    return Shop(spark, decoded.made.copy(tmp_path / "made"))


def test_each_type_has_a_table_that_any_reader_of_delta_can_read(fresh):
    shop = fresh
    shop.schema("OrderId BIGINT", "Shop.Paid")

    done = shop.decode()

    assert (done.added, done.rescued, done.errors) == (3, 1, 0)
    first, _, third = shop.rows()
    assert (first["message_id"], first["OrderId"], first["queue"], first["endpoint"], first["time_sent"]) == (
        "m1",
        1,
        "audit",
        "Sales",
        NOON,
    )
    assert (first["day"].isoformat(), first["_rescued"], third["_rescued"]) == ("2024-05-17", None, '{"$.Extra":5}')
    assert [row["OrderId"] for row in shop.rows("Shop.Paid")] == [1]


def test_a_type_whose_name_no_folder_can_have_has_a_table_too(spark, shop):
    generic = "Shop.Envelope`1[[Shop.A~, Shop]]"
    shop.schema("OrderId BIGINT", file_name(generic))
    shop.made.batch(2, [audit_row("g", body=b'{"OrderId": 7}', EnclosedMessageTypes=generic)])

    for _ in range(2):
        shop.decode()

    assert [row["OrderId"] for row in shop.rows("Shop.Envelope~601~5B~5BShop.A~7E~2C~20Shop~5D~5D")] == [7]


def test_a_run_adds_what_is_new_and_a_run_after_a_merge_adds_nothing(spark, shop):
    assert shop.decode().added == 0

    shop.made.batch(2, [order(4)])
    assert shop.decode().added == 1
    compact(shop.path, datetime.now(UTC))

    assert shop.decode().added == 0
    assert [row["OrderId"] for row in shop.rows()] == [1, 2, 3, 4]


@pytest.mark.spark_promise
def test_a_lost_state_a_deleted_table_and_a_message_that_is_archived_twice_double_nothing(shop):
    shop.made.batch(2, [order(5)] * 2)
    twice = order(6)
    shop.made.batch(3, [twice])
    shop.decode()
    shop.made.batch(4, [twice])
    (shop.out / "_rowpost" / "decoded.json").unlink()

    assert shop.decode().added == 0
    assert [row["OrderId"] for row in shop.rows()] == [1, 2, 3, 5, 6]
    shutil.rmtree(shop.out / ORDER)
    assert shop.decode().added == 5


def test_a_new_schema_of_a_type_decodes_its_messages_from_the_beginning(shop):
    shop.schema("OrderId BIGINT", "Shop.Paid")

    shop.decode()

    assert [row["OrderId"] for row in shop.rows("Shop.Paid")] == [1]


def test_a_changed_schema_adds_columns_and_fields(shop):
    shop.schema("Extra INT,\nCustomer STRING,\nOrderId BIGINT,\nLines ARRAY<STRUCT<Count: INT, Sku: STRING>>")
    shop.made.batch(2, [order(4, Extra=6, Lines=[{"Sku": "x", "Count": 2}])])

    assert shop.decode().new_columns == ("Extra", "Lines")
    shop.schema("OrderId BIGINT,\nLines ARRAY<STRUCT<Count: INT>>")
    shop.made.batch(3, [order(5, Lines=[{"Count": 2}])])
    assert shop.decode().new_columns == ()

    assert [(row["OrderId"], row["Extra"], row["Lines"]) for row in shop.rows()[2:]] == [
        (3, None, None), (4, 6, [{"Sku": "x", "Count": 2}]), (5, None, [{"Sku": None, "Count": 2}]),
    ]  # fmt: skip


def test_a_changed_type_is_refused_before_anything_is_written(shop):
    shop.schema("OrderId BIGINT", "Shop.Paid")
    shop.made.batch(2, [order(4)])

    for text in ("OrderId STRING", "orderid BIGINT", "Lines ARRAY<STRUCT<Sku: INT>>", "Customer ARRAY<STRING>"):
        shop.schema(text)
        with pytest.raises(SparkFailed, match="A type cannot change"):
            shop.decode()

    assert len(shop.rows()) == 3 and not (shop.out / "Shop.Paid").exists()


def test_another_writer_between_the_look_and_the_commit_doubles_nothing(fresh, monkeypatch):
    shop = fresh
    original, raced = ArchiveTable.commit, []

    def commit(self, *args, **options):
        if "decoded" in self.path and not raced:
            raced.append(self.path)
            monkeypatch.setattr(ArchiveTable, "commit", original)
            other = decode._Table(self.path, read_schemas(shop.folder)[ORDER])
            source = open_table(shop.path)
            assert other.add(shop.spark, source, source.files()).added == 3
        return original(self, *args, **options)

    monkeypatch.setattr(ArchiveTable, "commit", commit)

    assert shop.decode().added == 0
    assert raced and [row["OrderId"] for row in shop.rows()] == [1, 2, 3]


def test_many_runs_leave_few_files(shop, monkeypatch):
    monkeypatch.setattr(decode, "AUTOMATIC_FILES", 2)
    for number in range(4, 6):
        shop.made.batch(number, [order(number)])
        shop.decode()

    assert len(shop.rows()) == 5
    assert len(open_table(str(shop.out / ORDER)).files()) == 2  # one of each day


def test_a_table_is_no_folder_of_tables(spark, shop):
    with pytest.raises(SparkFailed, match="a table itself"):
        decode.run(spark, shop.path, shop.path, read_schemas(shop.folder))


# ---------------------------------------------------------------------------------------------- erase
MARKER = "Grace-Hopper-1906"


def holding(*folders) -> list[str]:
    found = [
        (str(folder), name)
        for folder in folders
        for name, info in ArchiveFolder(str(folder)).contents()
        if info.is_file
    ]
    return [name for folder, name in found if contains(folder, name, MARKER)]


@pytest.fixture(scope="module")
def marked(spark, decoded, tmp_path_factory) -> Shop:
    """Messages of one person in several batches and in the files of several runs, and a merge of these files."""
    shop = Shop(spark, decoded.made.copy(tmp_path_factory.mktemp("marked") / "made"))
    shop.schema(f"{DDL},\nTags MAP<STRING, STRUCT<A: STRING>>")
    shop.made.batch(2, [order(4, MARKER), order(5, "Bob", Note=MARKER), order(6)])
    shop.decode()
    assert holding(shop.out) != []
    shop.made.batch(3, [order(8, "Eve", Lines=[{"Sku": MARKER}]), order(9, "Eve", Tags={"a": {"A": MARKER}})])
    shop.decode()
    shop.made.batch(4, [order(7, MARKER)])
    shop.decode()
    compact(str(shop.out / ORDER), datetime.now(UTC))
    assert any("decode" in name or "compact" in name for name in holding(shop.out))
    return shop


@pytest.mark.parametrize("by", ["where", "ids"])
def test_erase_reaches_the_tables_and_no_byte_of_the_message_is_left(spark, marked, tmp_path, by):
    shop = Shop(spark, marked.made.copy(tmp_path / "made"))

    selection = (
        erase.Erasure(where=f"contains(cast(body as string), '{MARKER}')")
        if by == "where"
        else erase.Erasure(ids=("m4", "m5", "M7", "m8", "m9"))
    )
    receipt = erase.run(spark, shop.path, selection, "request 17", NOW)

    assert (receipt["erased"], receipt["copies_erased"], receipt["copies_missing"], receipt["unfinished"]) == (
        5,
        5,
        [],
        0,
    )
    assert holding(shop.out, shop.path) == []
    assert [row["OrderId"] for row in shop.rows()] == [1, 2, 3, 6]
    assert shop.decode().added == 0 and len(archived_rows(shop.path, "id")) == 5


#: a text with the marker that is not in the bytes of a compressed file as it is
LONG = f"{Random(7).randbytes(5000).hex()}{MARKER}"


def test_a_search_finds_a_text_within_lists_and_maps(fresh):
    nested = ({"Lines": [{"Sku": LONG}]}, {"Tags": {LONG: {"A": "x"}}}, {"Tags": {"a": {"A": LONG}}})
    fresh.schema(f"{DDL},\nTags MAP<STRING, STRUCT<A: STRING>>")
    fresh.made.batch(
        2, [order(4 + number, day=10 + number, **fields) for number, fields in enumerate(nested)]
    )  # a file for each day
    fresh.decode()

    assert [name.partition("day=")[2][:10] for name in sorted(holding(fresh.out))] == [
        "2024-05-27",
        "2024-05-28",
        "2024-05-29",
    ]


def test_erase_says_which_copies_it_does_not_find(spark, shop):
    shutil.move(shop.out, shop.out.with_name("moved"))

    receipt = erase.run(spark, shop.path, erase.Erasure(ids=("m1",)), "request 17", NOW)
    assert receipt["copies_missing"] == [str(shop.out)]

    moved = str(shop.out.with_name("moved") / ORDER)
    assert erase.run(spark, moved, erase.Erasure(where="OrderId = 1"), "request 17", NOW)["erased"] == 1
