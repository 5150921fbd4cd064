"""rowpost run --install: what the endpoints on the command line need is created first."""

import psycopg
import pytest

from tests.support.program import Program, environment_file

SHOP = """
from dataclasses import dataclass

from rowpost import Endpoint, message_type
from rowpost.sagas import Saga, starts


@message_type("Shop.Start")
@dataclass
class Start:
    order: str


@dataclass
class State:
    order: str


class Policy(Saga[State], correlate={Start: "order"}):
    @starts(Start)
    def start(self, message, context):
        pass


payments = Endpoint("Payments", transaction_mode="transaction_scope")
sales = Endpoint("Sales", audit_queue="copies", error_queue="failures")
sales.saga(Policy)
"""


@pytest.fixture
def program(new_database, tmp_path) -> Program:
    """The program with an empty database, and an environment that declares no queue."""
    (tmp_path / "install_shop.py").write_text(SHOP)
    return Program(
        environment_file(tmp_path, rest="features: []\nqueues: {}\n"), tmp_path, SHOP_URL=new_database("embedded")
    )


def test_what_endpoints_need_is_created_and_is_there_the_second_time(program: Program):
    refused = program("run", "install_shop:sales", "--until-idle")
    first = program("run", "install_shop:sales", "--until-idle", "--install")
    second = program("run", "install_shop:sales", "--until-idle", "--install")
    plain = program("run", "install_shop:sales", "--until-idle")

    assert refused.code != 0 and "rowpost apply" in refused.err
    assert (first.code, second.code, plain.code) == (0, 0, 0), first.err + second.err + plain.err
    assert "Installed in" in first.err and "copies" in first.err
    assert "Installed in" not in second.err
    listed = {each["queue"] for each in program("queue", "list", "--json").json}
    assert {"Sales", "copies", "failures"} <= listed


def test_a_deployment_of_the_environment_leaves_what_was_installed(program: Program):
    program("run", "install_shop:sales", "--until-idle", "--install")

    applied = program("apply", "--yes")

    assert applied.code == 0
    assert program("run", "install_shop:sales", "--until-idle").code == 0


def test_the_features_of_an_endpoint_are_installed(program: Program):
    installed = program("run", "install_shop:payments", "--until-idle", "--install")

    with psycopg.connect(program.variables["SHOP_URL"]) as connection:
        (count,) = connection.execute("SELECT count(*) FROM pg_proc WHERE proname = 'record_decision'").fetchone()
    assert (installed.code, count) == (0, 1), installed.err


def test_production_is_refused(program: Program, tmp_path):
    production = program.with_environment(environment_file(tmp_path, rest="queues: {}\n", name="production"))

    refused = production("run", "install_shop:sales", "--install")

    assert refused.code == 2
    assert "run --install is for development" in refused.err
