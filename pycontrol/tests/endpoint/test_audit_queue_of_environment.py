"""The audit queue that an environment's file names, for all endpoints or for one."""

from dataclasses import replace

import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.endpoint.function import FunctionEndpoint
from rowpost.endpoint.hosting import needed_queues, undeclared_queues
from rowpost.errors import SettingsError
from rowpost.pipeline.pipeline import Pipeline
from rowpost.settings.environment import QueueSettings, Settings, WorkerSettings, load_settings
from rowpost.transport.queue import Queue
from tests.support.schema import named

TYPE = {"NServiceBus.EnclosedMessageTypes": "Shop.Pay"}
BOTH = "audit_queue: audit-all\nendpoints: {Sales: {audit_queue: audit-sales}}\n"


@pytest.fixture
def load(tmp_path):
    def read(text):
        path = tmp_path / "shop.yml"
        path.write_text(f"engine: embedded\nqueues: {{Sales: {{}}}}\n{text}")
        return load_settings(path)

    return read


@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [
        ("", None, None),
        ("audit_queue: audit-all\n", None, "audit-all"),
        (BOTH, None, "audit-sales"),
        ("audit_queue: audit-all\n", "audit-code", "audit-code"),
        ("endpoints: {Sales: {audit_queue: audit-code}}\n", "audit-code", "audit-code"),
    ],
    ids=["none", "for all", "for one", "the code's", "the same twice"],
)
def test_the_code_comes_first_and_then_the_endpoints_key_and_then_the_environments(load, text, code, expected):
    endpoint = Endpoint("Sales", audit_queue=code)

    endpoint.configure(load(text))

    assert endpoint.audit_queue == expected


def test_two_queues_for_one_endpoint_are_refused(load):
    with pytest.raises(SettingsError, match=r"endpoints\.Sales\.audit_queue"):
        Endpoint("Sales", audit_queue="audit-code").configure(load(BOTH))


@pytest.mark.parametrize("text", ["audit_queue: 'a@b@c@d'\n", "endpoints: {Sales: {audit_queue: 'a@b@c@d'}}\n"])
def test_what_is_not_a_queues_name_is_refused_with_its_key(load, text):
    with pytest.raises(SettingsError, match="audit_queue"):
        load(text)


@pytest.mark.parametrize("kind", ["endpoint", "function"])
def test_a_handled_message_is_audited_to_the_environments_queue(database, queue, sql, target, kind):
    sql.empty("audit")
    queue.send(b"body", {**TYPE, "Shop.Kept": "yes"})
    endpoint = FunctionEndpoint(lambda message, connection: None, "Sales") if kind == "function" else Endpoint("Sales")
    if kind == "endpoint":
        endpoint.handles("Shop.Pay")(lambda body, context: None)
    endpoint.configure(replace(target.settings, audit_queue=named("audit")))

    Pipeline(database, "Sales", endpoint).process_one()

    (copy,) = Queue("audit", database).receive(10)
    assert (copy.body, copy.headers["Shop.Kept"]) == (b"body", "yes")
    assert copy.headers["NServiceBus.ProcessingEndpoint"] == "Sales"


@pytest.mark.parametrize("handler", ["once", "loop"])
def test_a_deployment_knows_the_queue_before_the_workers_start(load, handler):
    module = "failing" if handler == "once" else "handlers"
    worker = WorkerSettings(f"tests.support.{module}:{handler}")
    settings = replace(load("audit_queue: audit-all\n"), queues=(QueueSettings("Sales", worker=worker),))

    assert "audit-all" in needed_queues(settings)
    assert "audit-all" in undeclared_queues(settings)


@pytest.mark.parametrize(
    "endpoint", [Endpoint("Sales"), FunctionEndpoint(print, "Sales")], ids=["endpoint", "function"]
)
def test_the_queue_is_in_the_default_schema_of_the_environment(endpoint):
    settings = Settings(default_schema="nsb", audit_queue="audit")

    endpoint.configure(settings)

    assert endpoint.audit_queue == settings.naming.resolve("audit") != "audit"
