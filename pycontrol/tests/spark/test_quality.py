"""Messages are compared with expectations, counted by rule, type and day, and set aside with the rules that they fail."""

import json
from datetime import date, timedelta

import pytest
from deltalake import DeltaTable

from rowpost.errors import SettingsError
from rowpost.spark.bodies.expectations import read_expectations
from rowpost.spark.bodies.schema_files import read_schemas
from rowpost.spark.jobs import erase, quality
from tests.support.spark.archives import ArchiveMaker
from tests.support.spark.messages import NOON, audit_row

ORDER = "Shop.PlaceOrder"
TODAY = date(2024, 5, 20)


def order(message: str, body: object, minute: float = 0, day: int = 0, kind: str = ORDER) -> tuple:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return audit_row(message, sent=NOON + timedelta(days=day, minutes=minute), body=text, EnclosedMessageTypes=kind)


@pytest.fixture
def shop(spark, tmp_path):
    """An archive, its schemas, and `judge`, which runs rules and returns for each the ids of the failing messages."""

    class Shop:
        made = ArchiveMaker(spark, tmp_path / "made")
        path, apart, file, batches = str(tmp_path / "made" / "out"), tmp_path / "apart", tmp_path / "expect.yml", 0

        def store(self, *rows: tuple) -> None:
            self.made.batch(self.batches, rows)
            self.batches += 1

        def run(self, rules: str, **options):
            self.file.write_text(f"schemas: schemas\nrules:\n{rules}")
            expectations = read_expectations(self.file)
            return quality.run(spark, self.path, expectations, read_schemas(expectations.schemas), today=TODAY, apart=str(self.apart), **options)

        def judge(self, rules: str, **options) -> dict[str, list[str]]:
            outcomes, _ = self.run(rules, **options)
            rows = DeltaTable(self.apart).to_pyarrow_table().to_pylist()
            return {each.rule.name: sorted(row["message_id"] for row in rows if each.rule.name in row["failed_rules"]) for each in outcomes}

    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / f"{ORDER}.ddl").write_text(
        "OrderId BIGINT, Amount DECIMAL(10,2), Colour STRING, Customer STRUCT<Name: STRING>, Placed DATE, Number INT, Branch STRING"
    )
    (tmp_path / "schemas" / "Shop.Paid.ddl").write_text("OrderId BIGINT")
    return Shop()


def test_each_check_finds_its_messages_and_null_passes(shop):
    good = {"OrderId": 1, "Amount": 5, "Colour": "red", "Customer": {"Name": "Ada"}, "Placed": "2026-01-01"}
    shop.store(
        order("good", good), order("none", {}), order("low", good | {"OrderId": 2, "Amount": -1}), order("high", good | {"OrderId": 3, "Amount": 10.01}),
        order("blue", good | {"OrderId": 4, "Colour": "blue"}), order("early", good | {"OrderId": 5, "Placed": "2025-12-31"}),
        order("extra", good | {"OrderId": 6, "Extra": 1}), order("broken", b"{"), order("paid", {"OrderId": 1}, kind="Shop.Paid"),
        order("unknown", {}, kind="Shop.Unknown"), order("no type", {}, kind=None),
    )  # fmt: skip

    found = shop.judge("""
  - {name: not null, message_type: Shop.PlaceOrder, not_null: [OrderId, Customer.Name]}
  - {name: range, column: Amount, min: 0, max: 10}
  - {name: values, column: Colour, values: [red, green]}
  - {name: dates, column: Placed, min: 2026-01-01}
  - {name: regex, column: Customer.Name, matches: 'A.'}
  - {name: sql, message_type: Shop.*, sql: 'OrderId / (Amount - 5) > 0 or cast(Colour as int) = 1 or Amount <> 5'}
  - {name: known, known_type: true}
  - {name: left over, no_rescued: true}
  - {name: header, not_null: message_type}
""")

    assert found == {
        "not null": ["broken", "none"],
        "range": ["high", "low"],
        "values": ["blue"],
        "dates": ["early"],
        "regex": ["blue", "early", "extra", "good", "high", "low"],
        "sql": [],
        "known": ["unknown"],
        "left over": ["broken", "extra"],
        "header": ["no type"],
    }


def test_a_value_is_unique_within_a_window_and_copies_of_one_message_are_one(shop):
    shop.store(order("a", {"OrderId": 1}), order("b", {"OrderId": 1}, minute=30), order("c", {"OrderId": 1}, minute=120), order("a", {"OrderId": 1}, minute=1),
               order("d", {"OrderId": None}), order("e", {}), order("paid", {"OrderId": 1}, kind="Shop.Paid"))  # fmt: skip

    found = shop.judge("  - {name: hour, unique: OrderId, within: 1h}\n  - {name: ever, unique: [OrderId]}\n")

    assert found == {"hour": ["b"], "ever": ["b", "c"]}


def test_a_gap_in_a_sequence_is_found_by_its_key(shop):
    numbers = {"A": [5, 6, 8, 8, 9, 12], "B": [1, 2]}
    shop.store(
        *(order(f"{branch}{number}", {"Number": number, "Branch": branch}) for branch, own in numbers.items() for number in own), order("none", {})
    )

    assert shop.judge("  - {name: gap, message_type: Shop.PlaceOrder, sequence: Number, by: Branch}\n") == {"gap": ["A12", "A8"]}


def test_messages_are_counted_by_type_and_day_and_only_errors_above_their_share_are_breaches(shop):
    shop.store(*(order(f"m{n}", {"Amount": n}, day=n % 2) for n in range(10)))
    rules = """
  - {name: strict, column: Amount, max: 7}
  - {name: allowed, column: Amount, max: 7, allowed: 20%}
  - {name: warning, column: Amount, max: 7, severity: warning}
"""

    outcomes, done = shop.run(rules)

    assert [(each.messages, each.failed, each.is_breach) for each in outcomes] == [(10, 2, True), (10, 2, False), (10, 2, False)]
    assert [(day["day"].isoformat(), day["messages"], day["failed"], day["example"]) for day in outcomes[0].days] == [
        ("2024-05-17", 5, 1, "m8"),
        ("2024-05-18", 5, 1, "m9"),
    ]
    assert done["apart"] == 2

    outcomes, _ = shop.run(rules, span=timedelta(days=3))
    assert (outcomes[0].messages, outcomes[0].failed) == (5, 1)


def test_failing_messages_are_set_aside_once_with_their_whole_content(spark, shop):
    shop.store(order("m1", {"Amount": -1, "New": "x"}))
    rules = "  - {name: positive, column: Amount, min: 0}\n  - {name: rest, no_rescued: true}\n"

    assert [shop.run(rules)[1]["apart"] for _ in range(2)] == [1, 0]

    (row,) = DeltaTable(shop.apart).to_pyarrow_table().to_pylist()
    assert (row["failed_rules"], row["_rescued"], json.loads(row["body"])) == (["positive", "rest"], '{"$.New":"x"}', {"Amount": -1, "New": "x"})
    receipt = erase.run(spark, shop.path, erase.Selection(ids=("m1",)), "request 17", NOON)
    assert (receipt["copies_erased"], DeltaTable(shop.apart).to_pyarrow_table().num_rows) == (1, 0)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rules: []", "is empty"),
        ("rule: []", "rule: unknown key: did you mean rules?"),
        ("rules: [{name: a, notnull: x}]", "rules.1.notnull: unknown key: did you mean not_null?"),
        ("rules: [{name: a}]", "rules.1: has no check"),
        ("rules: [{name: a, sql: x, unique: y}]", "has 2 checks (sql, unique)"),
        ("rules: [{name: a, sql: x}, {name: a, sql: y}]", "two rules are named 'a'"),
        ("rules: [{name: a, min: 1}]", "rules.1.column: missing"),
        ("rules: [{name: a, sql: x, within: 1d}]", "rules.1.within: belongs to unique, not to sql"),
        ("rules: [{name: a, unique: x, within: soon}]", "rules.1.within: must be a duration"),
        ("rules: [{name: a, sql: x, severity: eror}]", "did you mean error?"),
        ("rules: [{name: a, sql: x, allowed: 101%}]", "rules.1.allowed: must be a share"),
        ("rules: [{name: a, column: x, values: red}]", "rules.1.values: must be a list"),
        ("rules: [{name: a, column: x, min: [1]}]", "rules.1.min: must be a number"),
        ("rules: [{name: a, known_type: false}]", "rules.1.known_type: must be true"),
        ("rules: [{not_null: a}]", "rules.1.name: missing"),
        ("rules: [a]", "rules.1: must be a mapping"),
        ("rules:\n- {name: a,", "line 2"),
    ],
)
def test_a_wrong_rule_file_is_refused_with_its_place(tmp_path, text, says):
    path = tmp_path / "expect.yml"
    path.write_text(text)

    with pytest.raises(SettingsError) as error:
        read_expectations(path)

    assert says in str(error.value) and "expect.yml" in str(error.value)


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("{name: a, not_null: OrderID2}", "there is no column OrderID2: did you mean OrderId?"),
        ("{name: a, message_type: Shop.Paid, not_null: Amount}", "there is no column Amount"),
        ("{name: a, column: Customer.Nme, matches: x}", "there is no column"),
        ("{name: a, sql: 'OrderId >'}", "is not valid"),
        ("{name: a, sql: 'nofunction(OrderId)'}", "is not valid"),
        ("{name: a, column: Colour, matches: '(['}", "is not a regular expression"),
    ],
)
def test_a_rule_that_fits_to_no_type_is_refused_with_its_name(shop, rule, says):
    shop.store(order("m1", {}))

    with pytest.raises(SettingsError) as error:
        shop.run(f"  - {rule}\n")

    assert "rule 'a'" in str(error.value) and says in str(error.value)


def test_rules_of_headers_need_no_schema(spark, shop):
    shop.store(order("m1", {}), order("m2", {}, kind="Shop.Other"))
    shop.file.write_text(
        "rules:\n  - {name: small, column: body_bytes, max: 1}\n  - {name: sales, message_type: '*Other', column: endpoint, values: [Billing]}\n"
    )

    outcomes, _ = quality.run(spark, shop.path, read_expectations(shop.file), {}, today=TODAY)

    assert [(each.messages, each.failed) for each in outcomes] == [(2, 2), (1, 1)]
