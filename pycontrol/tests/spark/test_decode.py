"""Bodies become typed columns; what does not fit is kept and never fails a job."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from rowpost.errors import SettingsError
from rowpost.spark.bodies.decoding import decode_batch, decoded_type
from rowpost.spark.bodies.schema_files import as_ddl, file_name, read_schemas, type_of
from rowpost.spark.jobs.archive import archive
from rowpost.spark.jobs.decode import decode, decode_type, undecoded
from tests.support.documents import ROOT, blocks
from tests.support.recorded_rows import recorded
from tests.support.spark.messages import audit_row, messages, raw

ORDER = "Shop.PlaceOrder"
DDL = """
-- what Sales receives
OrderId BIGINT NOT NULL COMMENT 'number in the shop',
Amount DECIMAL(10,2),
Placed TIMESTAMP,
Lines ARRAY<STRUCT<Sku: STRING, Count: INT>>,
Tags MAP<STRING, STRING>,
Queue STRING
"""
VALUES = """
OrderId BIGINT, Echo BOOLEAN, Amount DECIMAL(10,2), At TIMESTAMP_NTZ, `When` TIMESTAMP, Day DATE, Clock STRING, Span STRING, Id STRING,
Data BINARY, Ratio DOUBLE, Big BIGINT, Yes BOOLEAN, Text STRING, Numbers ARRAY<INT>, Map MAP<STRING, STRING>, Colour {colour},
Line STRUCT<Sku: STRING, Count: INT, Price: DECIMAL(10,2)>, Lines ARRAY<STRUCT<Sku: STRING>>
"""


@pytest.fixture
def schemas(spark, tmp_path):
    """Write schema files, and read them."""

    def write(**files: str):
        for name, text in files.items():
            (tmp_path / f"{name.replace('__', '.')}.ddl").write_text(text)
        return read_schemas(tmp_path)

    return write


class Fields(dict):
    """A struct whose fields are attributes too, as in Spark's rows."""

    __getattr__ = dict.__getitem__

    @classmethod
    def of(cls, value):
        if isinstance(value, dict):
            return cls({name: cls.of(each) for name, each in value.items()})
        return [cls.of(each) for each in value] if isinstance(value, list) else value


def rows_of(schemas, *bodies: bytes | None, content_type: str | None = None) -> list[Fields]:
    """Decode bodies of the type ORDER in one batch, as Spark's workers do."""
    schema, content_types = schemas[ORDER], pa.array([content_type] * len(bodies), pa.string())
    found = decode_batch(pa.array(bodies, pa.binary()), content_types, schema, decoded_type(schema))
    return Fields.of(found.to_pylist(maps_as_pydicts="strict"))


def test_a_json_body_becomes_typed_columns(spark, schemas):
    body = b'{"OrderId": 7, "Amount": 19.90, "Placed": "2026-11-22T10:00:00.1234567+02:00", "Lines": [{"Sku": "x", "Count": 2}], "Tags": {"a b": "c"}, "Queue": "q"}'

    (row,) = decode(archive(messages(spark, audit_row(body=body)), "audit"), schemas(Shop__PlaceOrder=DDL))[
        ORDER
    ].collect()

    assert (row.OrderId, row.Amount, row.Tags, row._rescued, row._error) == (
        7,
        Decimal("19.90"),
        {"a b": "c"},
        None,
        None,
    )
    assert [each.asDict() for each in row.Lines] == [{"Sku": "x", "Count": 2}]
    assert (row.body_Queue, row.queue, row.body) == ("q", "audit", bytearray(body))


def test_what_does_not_fit_is_rescued_with_its_path_and_value(schemas):
    body = b'{"OrderId": 7, "Amount": "many", "Lines": [{"Sku": 5, "Count": 1, "New": 1.10}], "Extra": {"a": [1, 12345678901234567890123]}, "Placed": null}'

    (row,) = rows_of(schemas(Shop__PlaceOrder=DDL), body)

    assert (row.OrderId, row.Amount, row.Lines[0].Count, row.Lines[0].Sku) == (7, None, 1, None)
    assert json.loads(row._rescued) == {
        "$.Amount": "many", "$.Lines[0].Sku": 5, "$.Lines[0].New": 1.1, "$.Extra": {"a": [1, 12345678901234567890123]},
    }  # fmt: skip
    assert row._error == "$.Amount is not DECIMAL(10,2); $.Lines[0].Sku is not STRING"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"OrderId": 7', "not JSON"),
        (b"", "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[1]", "no object"),
        (b'{"OrderId": NaN}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"OrderId": ' + b"9" * 5000 + b"}", "not JSON"),
        (b"<a", "not XML"),
        (b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "refused"),
        (b"<a>" * 5000 + b"</a>" * 5000, ""),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_broken_body_is_kept_whole_beside_the_others(schemas, body, says):
    broken, whole = rows_of(schemas(Shop__PlaceOrder=DDL), body, b'{"OrderId": 7}')

    assert (broken.OrderId, whole.OrderId, whole._error) == (None, 7, None)
    assert says in broken._error
    kept = json.loads(broken._rescued)["$"]
    assert kept == (body.decode() if body[:1] != b"\xff" else {"base64": "//4A"})


def test_a_message_without_body_and_one_without_a_required_field_have_an_error(schemas):
    none, missing, null, wrong = rows_of(
        schemas(Shop__PlaceOrder=DDL), None, b"{}", b'{"OrderId": null}', b'{"OrderId": "x"}'
    )

    assert [row._error for row in (none, missing, null, wrong)] == [
        "there is no body", "$.OrderId is missing", "$.OrderId is missing", "$.OrderId is not BIGINT",
    ]  # fmt: skip
    assert [row._rescued for row in (none, missing, null, wrong)] == [None, None, None, '{"$.OrderId":"x"}']


HARD = [  # of each: the type, the JSON of a value that fits and what it becomes, the JSON of values that do not fit
    ("TINYINT", "-128", -128, ["128", "1.5", '"1"', "true"]),
    ("BIGINT", "3.0", 3, ["9223372036854775808", "1e400", "1e999999999"]),
    ("DECIMAL(4,2)", '"12.30"', Decimal("12.30"), ["123.4", "1.234", '"NaN"', '"Infinity"', '"1_0"', "1e400", "true"]),
    ("DECIMAL(4,2)", "1.5000", Decimal("1.50"), ["[1]"]),
    ("DOUBLE", "1E-7", 1e-7, ["1e999", '"1"', "false"]),
    ("FLOAT", "2", 2.0, ["1e39"]),
    ("BOOLEAN", "true", True, ["1", '"true"']),
    ("STRING", '"a"', "a", ["1", '"\\ud800"', '"\\udfff x"', "{}"]),
    ("DATE", '"2026-11-22"', date(2026, 11, 22), ['"2026-11-31"', '"20261122"', "5", '"2026-W01-1"']),
    (
        "TIMESTAMP",
        '"2026-11-22T10:00:00"',
        datetime(2026, 11, 22, 10, tzinfo=UTC),
        ['"2026-11-22"', '"0001-01-01T00:00:00+14:00"', '"soon"', "0"],
    ),
    (
        "TIMESTAMP_NTZ",
        '"2026-11-22T10:00"',
        datetime(2026, 11, 22, 10),
        ['"2026-11-22T10:00:00Z"', '"2026-13-22T10:00:00"'],
    ),
    ("BINARY", '"YWJj"', bytearray(b"abc"), ['"Y"', '"*"', "1"]),
    ("ARRAY<INT>", "[1, null]", [1, None], ["{}", "1", '[1, "x"]']),
    ("MAP<STRING, INT>", '{"a": 1}', {"a": 1}, ["[]", '{"a": "x"}', '{"\\ud800": 1}']),
    ("STRUCT<A: INT>", "{}", {"A": None}, ["[]", '{"A": "x"}', '{"B": 1}']),
]


@pytest.mark.spark_promise
@pytest.mark.parametrize(
    ("kind", "fits", "becomes", "rest"), HARD, ids=lambda value: value if isinstance(value, str) else ""
)
def test_no_value_fails_the_job_and_none_is_lost(schemas, kind, fits, becomes, rest):
    bodies = [f'{{"V": {each}}}'.encode() for each in (fits, *rest)]

    first, *others = rows_of(schemas(Shop__PlaceOrder=f"V {kind}"), *bodies)

    assert (first.V, first._rescued) == (becomes, None)
    assert all(row._rescued is not None for row in others), [row._rescued for row in others]
    assert all(row.V is None or kind[:3] in ("ARR", "MAP", "STR") for row in others)


@pytest.mark.parametrize("name", ["send-values", "send-xml-values"])
def test_every_value_that_nservicebus_wrote_fits(spark, schemas, name):
    known = schemas(Shop__PlaceOrder=VALUES.format(colour="STRING" if "xml" in name else "INT"))
    row = recorded(name)

    df = archive(
        messages(spark, raw(row["headers"].replace("Shop.Messages.Values", ORDER), row["body"].encode())), "audit"
    )
    (found,) = decode(df, known)[ORDER].collect()

    assert (found._rescued, found._error) == (None, None)
    assert (found.OrderId, found.Echo, found.Amount, found.At) == (
        1,
        False,
        Decimal("19.90"),
        datetime(2026, 11, 22, 10, 0, 0, 123456),
    )
    assert (found.Data, found.Ratio, found.Big, found.Yes, found.Numbers) == (
        bytearray(b"abc"),
        1e-7,
        2**62,
        True,
        [1, 2],
    )
    assert found.Line.asDict() == {"Sku": "x", "Count": 2, "Price": Decimal("3.00")}
    assert found.body_Id == "01234567-89ab-cdef-0123-456789abcdef"


def test_sparks_own_readers_lose_what_decode_keeps(spark, schemas):
    """Why bodies are read in Python. If this test fails on a newer Spark, its readers may do."""
    lost = [
        ("STRING", "1.10"),
        ("DECIMAL(4,2)", "1.234"),
        ("TIMESTAMP", "0"),
        ("BIGINT", '1, "New": 2'),
        ("BIGINT", "1} {"),
    ]
    bodies = [f'{{"V": {text}}}' for _, text in lost]
    several = "<Messages><Other/><PlaceOrder><V>1</V></PlaceOrder></Messages>"
    columns = [
        F.from_json(F.lit(body), f"V {kind}, _c STRING", {"columnNameOfCorruptRecord": "_c"})
        for (kind, _), body in zip(lost, bodies, strict=True)
    ]
    xml = F.from_xml(F.lit(several), "V BIGINT, _c STRING", {"rowTag": "PlaceOrder", "columnNameOfCorruptRecord": "_c"})

    *json_rows, xml_row = spark.range(1).select(*columns, xml).first()

    assert all(row.V is not None and row._c is None for row in json_rows) and (xml_row.V, xml_row._c) == (None, None)
    for (kind, _), body in zip(lost, bodies, strict=True):
        (row,) = rows_of(schemas(Shop__PlaceOrder=f"V {kind}"), body.encode())
        assert row._rescued is not None, body


def test_xml_has_lists_dictionaries_nil_attributes_and_several_messages(schemas):
    start = '<PlaceOrder xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xmlns="http://tempuri.net/Shop">'
    pair = "NServiceBus.KeyValuePairOfStringAndString"
    one = f"""{start}<OrderId>7</OrderId><Amount xsi:nil="true"></Amount><Lines><Line><Sku>x</Sku><Count>2</Count></Line></Lines>
        <Tags><{pair}><Key>a b</Key><Value>c</Value></{pair}></Tags></PlaceOrder>"""
    odd = f'{start}<OrderId kind="n">7</OrderId><Amount>many</Amount><New><A>1</A><A>2</A></New><New>3</New><Lines>\n</Lines></PlaceOrder>'
    several = '<Messages xmlns="http://tempuri.net/Shop"><Other><A>1</A></Other><PlaceOrder><OrderId>8</OrderId></PlaceOrder></Messages>'

    first, second, third = rows_of(
        schemas(Shop__PlaceOrder=DDL), one.encode(), odd.encode(), several.encode(), content_type="text/xml"
    )

    assert (first.OrderId, first.Amount, first.Lines[0].Count, first.Tags, first._rescued) == (
        7,
        None,
        2,
        {"a b": "c"},
        None,
    )
    assert (second.OrderId, second.Lines) == (None, [])
    assert json.loads(second._rescued) == {
        "$.OrderId": {"@kind": "n", "#text": "7"},
        "$.Amount": "many",
        "$.New": {"A": ["1", "2"]},
        "$.New[2]": "3",
    }
    assert (third.OrderId, json.loads(third._rescued)) == (8, {"$.Other[0]": {"A": "1"}})


def test_of_several_json_messages_in_a_body_the_first_is_decoded(schemas):
    (row,) = rows_of(schemas(Shop__PlaceOrder=DDL), b'\xef\xbb\xbf[{"OrderId": 7}, {"OrderId": 8}]')

    assert (row.OrderId, json.loads(row._rescued)) == (7, {"$[1]": {"OrderId": 8}})


def test_a_type_without_a_schema_is_counted_and_the_first_of_several_types_decides(spark, schemas):
    both = "Shop.PlaceOrder, Shop; Shop.IOrder, Shop"
    rows = [
        audit_row("m1", body=b'{"OrderId": 1}', EnclosedMessageTypes=both),
        audit_row("m2", EnclosedMessageTypes="Shop.IOrder"),
        audit_row("m3", EnclosedMessageTypes=None),
    ]
    df = messages(spark, *rows)
    known = schemas(Shop__PlaceOrder=DDL)

    assert [row.OrderId for row in decode(df, known)[ORDER].collect()] == [1]
    assert sorted((row.message_type or "", row.messages) for row in undecoded(df, known).collect()) == [
        ("", 1),
        ("Shop.IOrder", 1),
    ]


def test_a_stream_is_decoded_too(spark, schemas, queues, tmp_path):
    queue = queues.make()
    queues.send(queue, [b'{"OrderId": 7}'], json.dumps({"NServiceBus.EnclosedMessageTypes": ORDER}))
    decoded = decode_type(
        queues.stream(queue, startingOffsets="earliest"), schemas(Shop__PlaceOrder=DDL)[ORDER]
    ).select("OrderId")

    query = (
        decoded.writeStream.format("parquet")
        .option("path", str(tmp_path / "o"))
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    assert [row.OrderId for row in spark.read.parquet(str(tmp_path / "o")).collect()] == [7]


# ---------------------------------------------------------------------------------------------- Avro
AVSC = {
    "type": "record", "name": "PlaceOrder", "namespace": "Shop", "doc": "an order",
    "fields": [
        {"name": "OrderId", "type": "long", "doc": "number in the shop"},
        {"name": "Amount", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}]},
        {"name": "Placed", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "Colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN"]}},
        {"name": "Lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [{"name": "Sku", "type": "string"}]}}},
        {"name": "Tags", "type": {"type": "map", "values": "int"}},
    ],
}  # fmt: skip


def avro_bodies() -> tuple[bytes, bytes, bytes]:
    """The same message as a bare value, in single-object encoding, and as a container file."""
    import io

    import fastavro
    from fastavro.schema import fingerprint, parse_schema, to_parsing_canonical_form

    parsed = parse_schema(AVSC)
    message = {
        "OrderId": 7,
        "Amount": Decimal("19.90"),
        "Placed": datetime(2026, 11, 22, 10, tzinfo=UTC),
        "Colour": "GREEN",
        "Lines": [{"Sku": "x"}],
        "Tags": {"a": 1},
    }
    bare, container = io.BytesIO(), io.BytesIO()
    fastavro.schemaless_writer(bare, parsed, message)
    fastavro.writer(container, parsed, [message])
    number = bytes.fromhex(fingerprint(to_parsing_canonical_form(parsed), "CRC-64-AVRO"))
    return bare.getvalue(), b"\xc3\x01" + number + bare.getvalue(), container.getvalue()


def test_avro_bodies_are_read_with_the_schema_of_their_type(spark, tmp_path):
    pytest.importorskip("fastavro", reason="the extra rowpost[avro] is not installed")
    (tmp_path / f"{ORDER}.avsc").write_text(json.dumps(AVSC))
    bodies = avro_bodies()

    rows = rows_of(read_schemas(tmp_path), *bodies, bodies[0] + b"x", b"\x80", content_type="avro/binary")

    for row in rows[:3]:
        assert (row.OrderId, row.Amount, row.Colour, row.Lines[0].Sku, row.Tags, row._rescued) == (
            7,
            Decimal("19.90"),
            "GREEN",
            "x",
            {"a": 1},
            None,
        )
    assert [row._error.partition(":")[0] for row in rows[3:]] == ["the body is not Avro of this schema"] * 2
    assert all("$" in json.loads(row._rescued) for row in rows[3:])


# ---------------------------------------------------------------------------------------------- schema files
@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.ddl", "A INT,\nB STRNG", "a.ddl: line 2, column 3: unknown type STRNG: did you mean STRING?"),
        ("a.ddl", "A INT,\nB ARRAY<INT", "a.ddl: line 2"),
        ("a.ddl", "A INT, a STRING", "A and a are the same column"),
        ("a.ddl", "L STRUCT<A: INT, a: INT>", "L: A and a are the same column"),
        ("a.ddl", "A INTERVAL DAY TO SECOND", "A duration is a STRING"),
        ("a.ddl", "M MAP<INT, INT>", "the keys of a MAP are STRING"),
        ("a.ddl", "V VARIANT", "V: a body has no VARIANT"),
        ("a.ddl", "STRING", "a.ddl"),
        ("a.avsc", "{", "a.avsc: line 1, column 2"),
        ("a.avsc", '{"type": "rekord", "name": "A"}', "a.avsc: is not an Avro schema"),
        (
            "a.avsc",
            '{"type": "record", "name": "A", "fields": [{"name": "u", "type": ["int", "string"]}]}',
            "a.avsc: u: a union of 2 types",
        ),
        (
            "a.avsc",
            '{"type": "record", "name": "A", "fields": [{"name": "u", "type": ["null", "A"]}]}',
            "u: A contains itself",
        ),
        ("a.txt", "", "has no schema"),
    ],
)
def test_a_wrong_schema_file_is_refused_with_its_place(spark, tmp_path, name, text, says):
    if name.endswith("avsc"):
        pytest.importorskip("fastavro", reason="the extra rowpost[avro] is not installed")
    (tmp_path / name).write_text(text)

    with pytest.raises(SettingsError) as error:
        read_schemas(tmp_path)

    assert says in str(error.value)


def test_the_guides_schema_is_read(schemas):
    (text,) = [block.text for block in blocks(ROOT / "docs" / "guides" / "spark-bodies.md") if block.language == "text"]

    assert schemas(A=text)["A"].fields.fieldNames() == ["Customer", "Amount", "Lines"]


def test_two_files_of_one_type_are_refused(spark, tmp_path):
    (tmp_path / "a.ddl").write_text("A INT")
    (tmp_path / "a.avsc").write_text('{"type": "record", "name": "a", "fields": []}')

    with pytest.raises(SettingsError, match="has a schema of a too"):
        read_schemas(tmp_path)


def test_fields_that_are_written_are_read_again(spark, schemas):
    text = "`a b` BIGINT NOT NULL COMMENT 'it''s',\nL ARRAY<STRUCT<`x.y`: MAP<STRING, DECIMAL(10,2)>>>,\n`order` TIMESTAMP_NTZ\n"
    fields = schemas(A=text)["A"].fields

    assert schemas(A=as_ddl(fields))["A"].fields == fields
    assert schemas(A="-- no fields\n")["A"].fields.fieldNames() == []
    assert type_of(file_name("Shop.A`1[[B, C]]/D")) == "Shop.A`1[[B, C]]/D"
