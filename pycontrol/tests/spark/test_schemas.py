"""Schemas are proposed from bodies, and changes of bodies are reported against the schemas that are kept."""

import json
from decimal import Decimal

import pyarrow as pa
import pytest
from examples.shop import messages as shop

from rowpost.spark.bodies.decoding import decode_batch, decoded_type
from rowpost.spark.bodies.proposing import FieldObservation, propose, shapes
from rowpost.spark.bodies.schema_files import Schema, as_ddl, read_schemas
from rowpost.spark.jobs import schemas
from rowpost.spark.jobs.archive import archive
from rowpost.spark.jobs.decode import decode
from rowpost.wire.json_serializer import JsonSerializer
from rowpost.wire.xml_serializer import XmlSerializer
from tests.support.recorded_rows import recorded
from tests.support.spark.messages import audit_row, messages, raw

ORDER = "Shop.PlaceOrder"

pytestmark = pytest.mark.usefixtures("spark")  # Spark writes DDL


def proposed(
    *bodies: bytes, content_type: str = "application/json", message_type: str = ORDER
) -> tuple[str, list[str]]:
    """Propose fields from bodies, without a job of Spark."""
    found = [
        FieldObservation(tuple(json.loads(path)), kind, 1, place)
        for body in bodies
        for path, kind, place in shapes(body, content_type, message_type)
    ]
    fields, unknown = propose(found)
    return as_ddl(fields), unknown


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "2"], "BIGINT"),
        (["1", "1.5", "null"], "DECIMAL(38,10)"),
        (["1", "0.30000000000000004"], "DOUBLE"),
        (["9223372036854775808"], "DECIMAL(38,10)"),
        (["1e300"], "DOUBLE"),
        (["true"], "BOOLEAN"),
        (['"2026-11-22"'], "DATE"),
        (['"2026-11-22T10:00:00Z"', '"2026-11-22T10:00:00.5+02:00"'], "TIMESTAMP"),
        (['"2026-11-22T10:00:00"'], "TIMESTAMP_NTZ"),
        (['"2026-11-22T10:00:00"', '"2026-11-22T10:00:00Z"'], "TIMESTAMP"),
        (['"2026-11-22"', '"soon"'], "STRING"),
        (['"a"', "1", '"b"'], "STRING"),
        (["[]", '["a"]'], "ARRAY<STRING>"),
        (["[1, null]", "[2.5]"], "ARRAY<DECIMAL(38,10)>"),
        (['[{"A": 1}, {"B": "x"}]'], "ARRAY<STRUCT<A: BIGINT, B: STRING>>"),
        (['{"A": {"B": null, "C": 1}}'], "STRUCT<A: STRUCT<C: BIGINT>>"),
        ([json.dumps({f"k{n}": 1.5 for n in range(101)}), '{"k": 1}'], "MAP<STRING, DECIMAL(38,10)>"),
        ([json.dumps({f"k{m}-{n}": 1 for n in range(60)}) for m in range(2)], "MAP<STRING, BIGINT>"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_type_is_proposed_that_holds_all_values(values, kind):
    assert proposed(*(f'{{"V": {value}}}'.encode() for value in values))[0] == f"V {kind}\n"


def test_fields_are_in_the_order_of_the_bodies_and_names_are_quoted():
    text, unknown = proposed(
        b'{"Order": 1, "B": "x", "a b": null, "b": 2}',
        b'{"Order": 2, "Z": 1, "A.x": true, "B": "y", "N": {}, "L": [[]]}',
    )

    assert text == "Order BIGINT,\nB STRING,\nZ BIGINT,\n`A.x` BOOLEAN\n"
    assert unknown == ["a b", "N", "L"]


def test_lists_and_dictionaries_are_found_in_xml():
    pair = "NServiceBus.KeyValuePairOfStringAndInt32"
    bodies = [
        b"<O><Id>1</Id><Lines><Line><Sku>x</Sku></Line></Lines><Items><Entry><A>1</A></Entry></Items><Zip>01234</Zip><At>2026-11-22T10:00:00Z</At></O>",
        f"<O><Id>2</Id><Items><Entry><A>1</A></Entry><Entry><A>2</A></Entry></Items><N><Int32>1</Int32></N><M><{pair}><Key>a</Key><Value>1</Value></{pair}></M></O>".encode(),
    ]

    text, _ = proposed(*bodies, content_type="text/xml")

    assert set(text.strip().split(",\n")) == {
        "Id BIGINT", "Items ARRAY<STRUCT<A: BIGINT>>", "Lines ARRAY<STRUCT<Sku: STRING>>", "N ARRAY<BIGINT>", "M MAP<STRING, BIGINT>",
        "Zip STRING", "At TIMESTAMP",
    }  # fmt: skip


@pytest.fixture
def df(spark):
    """Make an archive's DataFrame of bodies of the type ORDER, and of one message of another type."""

    def make(*bodies: bytes):
        rows = [audit_row(f"m{number}", body=body) for number, body in enumerate(bodies)]
        return archive(
            messages(spark, *rows, audit_row("p", body=b'{"Id": 1}', EnclosedMessageTypes="Shop.Paid")), "audit"
        )

    return make


def test_files_are_written_once_and_always_with_the_same_text(df, tmp_path):
    bodies = [
        json.dumps({"Id": n, "Lines": [{"Sku": "x", "Price": 1.5}], "Note": None}).encode() for n in range(50)
    ] + [b"{"]
    first = schemas.proposals(df(*bodies))

    assert schemas.write(tmp_path, first) == [tmp_path / "Shop.Paid.ddl", tmp_path / "Shop.PlaceOrder.ddl"]
    text = (tmp_path / "Shop.PlaceOrder.ddl").read_text()
    assert (
        text
        == "Id BIGINT,\nLines ARRAY<STRUCT<Sku: STRING, Price: DECIMAL(38,10)>>\n-- Note: null or empty in every message\n"
    )
    assert (first[1].messages, first[1].broken, first[1].unknown) == (51, 1, ("Note",))

    assert schemas.proposals(df(*reversed(bodies)).repartition(7)) == first
    assert schemas.proposals(df(*bodies), schemas.kept(tmp_path)) == []
    assert schemas.write(tmp_path, first) == []


def test_a_pattern_chooses_types(df):
    assert [each.message_type for each in schemas.proposals(schemas.of_types(df(b"{}"), "*Paid"))] == ["Shop.Paid"]


def test_what_was_proposed_fits_what_it_was_proposed_from(spark, tmp_path):
    rows = [
        raw(recorded(name)["headers"], recorded(name)["body"].encode())
        for name in ("send-values", "send-xml", "publish", "reply", "audit")
    ]
    df = archive(messages(spark, *rows), "audit")
    schemas.write(tmp_path, schemas.proposals(df))
    known = read_schemas(tmp_path)

    assert schemas.check(df, known) == []
    (found,) = decode(df, known)["Shop.Messages.Values"].collect()
    assert (found.Amount, found.OrderId, found._rescued, found._error) == (Decimal("19.9"), 1, '{"$.Lines":[]}', None)


def test_changes_are_reported_with_counts_and_an_example(df, tmp_path):
    (tmp_path / f"{ORDER}.ddl").write_text(
        "Id BIGINT NOT NULL,\nLines ARRAY<STRUCT<Sku: STRING, Old: INT>>,\nTags MAP<STRING, INT>,\nGone DATE,\nDeep STRUCT<A: INT>"
    )
    (tmp_path / "Shop.Never.ddl").write_text("A INT")
    bodies = [
        b'{"Id": 1, "Lines": [{"Sku": "x"}, {"Sku": 5}], "Tags": {"a": 1, "b": "x"}}',
        b'{"Id": 2, "Lines": [{"Sku": "x", "New": {"A": 1}}], "New": 1}',
        b'{"Lines": [{"Sku": 5, "New": 1}], "Tags": {"c": "x"}}',
        b"{",
    ]

    found = [
        (each.kind, each.field, each.messages, each.of, each.example, each.expected)
        for each in schemas.check(df(*bodies), read_schemas(tmp_path))
    ]

    assert sorted(found) == sorted([
        ("no schema", "", 1, 1, "p", None),
        ("broken body", "", 1, 4, "m3", None),
        ("missing", "Id", 1, 4, "m2", "BIGINT"),
        ("changed type", "Lines[].Sku", 2, 4, "m0", "STRING"),
        ("new field", "Lines[].New", 2, 4, "m1", None),
        ("never seen", "Lines[].Old", 0, 4, None, "INT"),
        ("changed type", "Tags{}", 2, 4, "m0", None),
        ("new field", "New", 1, 4, "m1", None),
        ("never seen", "Gone", 0, 4, None, "DATE"),
        ("never seen", "Deep", 0, 4, None, "STRUCT<A:INT>"),
    ])  # fmt: skip


def test_the_shops_messages_have_the_same_columns_in_json_and_in_xml(tmp_path):
    sent = {"Shop.Messages.PlaceOrder": shop.PlaceOrder("Ada", "4111-1111", 1001), "Shop.Messages.OrderPlaced": shop.OrderPlaced(7, "4111-1111", 1001),
            "Shop.Messages.PaymentOverdue": shop.PaymentOverdue()}  # fmt: skip
    written = {}
    for kind, serializer in (("application/json", JsonSerializer()), ("text/xml", XmlSerializer())):
        folder = tmp_path / kind.partition("/")[2]
        folder.mkdir()
        bodies = {name: serializer.encode(message) for name, message in sent.items()}
        texts = {name: proposed(body, content_type=kind, message_type=name)[0] for name, body in bodies.items()}
        for name, text in texts.items():
            (folder / f"{name}.ddl").write_text(text)
        written[kind] = (
            texts,
            {name: decoded(bodies[name], kind, schema) for name, schema in read_schemas(folder).items()},
        )

    assert written["application/json"] == written["text/xml"]
    assert list(written["text/xml"][1]["Shop.Messages.PlaceOrder"].values()) == ["Ada", "4111-1111", 1001, None, None]


def decoded(body: bytes, content_type: str, schema: Schema) -> dict:
    """Decode a body as Spark's workers do."""
    (row,) = decode_batch(
        pa.array([body], pa.binary()), pa.array([content_type], pa.string()), schema, decoded_type(schema)
    ).to_pylist()
    return row
