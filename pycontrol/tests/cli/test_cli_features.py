"""Features on the command line: what plan and apply say about them, and what a command says that lacks one."""

import pytest

from rowpost.database.contract import CORE, FEATURES_OF_QUEUES, ROLES, load_contract
from tests.support.program import Program, environment_file, program

__all__ = ["program"]  # a fixture

QUEUES = "queues: {Sales: {}, error: {}}\n"
OUTBOX = """
import os

from rowpost import Endpoint, Outbox

sales = Endpoint("Sales", transaction_mode="receive_only", outbox=Outbox("business", url=os.environ["SHOP_URL"]))


@sales.handles("Shop.PlaceOrder", dict)
def place(order, context):
    pass
"""


@pytest.fixture
def shop(new_database, tmp_path):
    """The program with an empty database, and a function that writes its environment file."""
    rowpost = Program(tmp_path / "shop.yml", tmp_path, SHOP_URL=new_database("embedded"))

    def declare(features, queues=QUEUES):
        environment_file(tmp_path, rest=f"features: {features}\n{queues}")
        return rowpost

    return declare


def test_plan_says_what_each_object_is_for(shop):
    rowpost = shop("[spark]")

    planned = rowpost("plan", "--json").json["review"]["items"]
    shown = rowpost("plan").err

    by_name = {item["name"]: item for item in planned}
    assert by_name["tables/020_ledger.sql"]["feature"] == "spark"
    assert by_name["procedures/queue/send_message.sql:Sales"]["purpose"] == "Store one message at the end of the queue."
    spark = [item for item in planned if item["feature"] == "spark"]
    assert f"spark: {len(spark)} objects, to archive, drain and load queues with Spark" in " ".join(shown.split())


def test_a_feature_that_is_removed_from_the_file_is_shown_and_then_dropped(shop):
    shop("[spark]")("apply")
    rowpost = shop("[]")

    planned = rowpost("plan", "--exit-code", "--json")
    applied = rowpost("apply", "--json").json

    assert planned.code == 1
    dropped = [each["name"] for each in planned.json["changes"] if each["state"] == "undeclared"]
    assert sorted(dropped) == sorted(applied["dropped"])
    assert "tables/020_ledger.sql" in dropped
    assert rowpost("verify").code == 0
    assert rowpost("plan", "--exit-code").code == 0


def test_plan_names_a_feature_that_stays_because_a_handler_cannot_be_imported(shop):
    shop("[outbox]")("apply")
    rowpost = shop("[]", 'queues: {Sales: {worker: {handler: "nowhere:sales"}}, error: {}}\n')

    kept = rowpost("plan", "--json").json["kept"]

    assert [each["subject"] for each in kept] == ["the feature outbox"]
    assert "cannot be imported here" in rowpost("plan").err
    assert rowpost("apply", "--json").json["dropped"] == []


def test_a_command_without_its_feature_names_the_line_and_the_command(shop, tmp_path):
    commands = {
        "sagas": [("sagas", "list")],
        "schedules": [("schedules", "list"), ("schedules", "pause", "nightly")],
        "spark": [
            ("spark", "archive", "Sales", tmp_path / "archive"),
            ("spark", "archive", "Sales", tmp_path / "drained", "--drain"),
        ],
    }
    rowpost = shop("[]")
    rowpost("apply")
    java = tmp_path / "java" / "bin" / "java"  # says whether anybody has looked for a Java
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\nexit 1\n")
    java.chmod(0o755)
    rowpost.variables["JAVA_HOME"] = str(java.parent.parent)

    ended = {(feature, *words): rowpost(*words) for feature, each in commands.items() for words in each}

    everywhere = {CORE, ROLES, *FEATURES_OF_QUEUES, "maintenance"}  # on PostgreSQL, or by another key than features
    by_section = {"outbox", "transactions"}  # their commands need a section of the file, which declares the feature
    assert {*commands} == set(load_contract().features) - everywhere - by_section
    for (feature, *words), each in ended.items():
        assert each.code == 6, words
        assert f"add `features: [{feature}]` to" in " ".join(each.err.split()), words
        assert each.err.endswith("run: rowpost apply\n"), words
    assert not (tmp_path / "asked").exists()  # which takes seconds


def test_an_endpoint_with_an_outbox_does_not_start_without_the_feature(shop, tmp_path):
    rowpost = shop("[]")
    rowpost("apply")
    (tmp_path / "app.py").write_text(OUTBOX)

    refused = rowpost("run", "app:sales", "--until-idle")
    shop("[outbox]")("apply")
    accepted = rowpost("run", "app:sales", "--until-idle")

    assert (refused.code, accepted.code) == (6, 0)
    assert "add `features: [outbox]` to" in refused.err
