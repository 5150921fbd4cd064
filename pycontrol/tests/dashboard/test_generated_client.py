"""The interface for programs, called by a client that a generator made from its OpenAPI document."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from rowpost.dashboard import app
from rowpost.dashboard.access import LoopbackAccess
from rowpost.dashboard.api import PATHS
from rowpost.transport.queue import Queue
from tests.support.dashboard import failed_headers, serving

pytest.importorskip(
    "openapi_python_client", reason="openapi-python-client is not installed: pip install 'rowpost[dev]'"
)

DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "dashboard-api.json"
PACKAGE = "rowpost_dashboard_client"


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    """The folder of a client that was generated from the document in the repository; it can be imported."""
    folder = tmp_path_factory.mktemp("generated") / "client"
    command = [
        sys.executable,
        "-m",
        "openapi_python_client",
        "generate",
        "--path",
        DOCUMENT,
        "--output-path",
        folder,
        "--meta",
        "none",
    ]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    sys.path.insert(0, str(folder.parent))
    folder.rename(folder.parent / PACKAGE)
    yield importlib.import_module(PACKAGE)
    sys.path.remove(str(folder.parent))


@pytest.fixture(scope="module")
def client(target, generated):
    if target.babelfish:
        pytest.skip("Babelfish has no HAS_PERMS_BY_NAME for objects")
    with serving(app(target.settings, access=LoopbackAccess())) as served:
        yield generated.Client(base_url=str(served.base_url).rstrip("/"))


@pytest.fixture
def arguments(database, sql):
    """One failed and one waiting message, and the arguments with which they are found."""
    for name in ("error", "Sales", "audit"):
        sql.empty(name)
    headers = failed_headers()
    Queue("error", database).send(b"{}", headers)
    Queue("Sales", database).send(b"\xff", {"a": None})
    rows = {name: Queue(name, database).browse(1)[0].row_version for name in ("error", "Sales")}
    return {
        "message": {"queue": "Sales", "row": rows["Sales"]},
        "failed_message": {"row": rows["error"]},
        "queue": {"queue": "Sales"},
        "messages": {"queue": "Sales", "count": 10},
        "delayed": {"queue": "Sales"},
        "message_life": {"id": headers["NServiceBus.MessageId"]},
        "conversation": {"id": str(uuid4())},
        "operation": {
            "number": database.call("record_operation", operation_name="pause", client="test", queue_name="Sales")[
                0
            ].operation_id
        },
        "schedule": {"schedule": "None"},
        "saga_instances": {"saga": "None"},
        "saga_instance": {"saga": "None", "instance": "1"},
    }


@pytest.mark.parametrize("path", [each.path for each in PATHS if each.method == "get"])
def test_each_operation_returns_its_document(client, generated, arguments, path):
    name = path.rpartition("/")[2].replace("-", "_")
    operation = importlib.import_module(f"{PACKAGE}.api.default.{name}")

    answer = operation.sync_detailed(client=client, **arguments.get(name, {}))

    expected = next(each.document for each in PATHS if each.path == path).__name__
    assert type(answer.parsed).__name__ == (
        "Problem" if {"saga", "schedule"} & arguments.get(name, {}).keys() else expected
    )
    assert answer.parsed.to_dict() == json.loads(answer.content)


def test_a_message_is_followed_with_the_clients_types(client, arguments):
    life = importlib.import_module(f"{PACKAGE}.api.default.message_life").sync(
        client=client, **arguments["message_life"]
    )

    assert [(fact.kind, fact.place) for fact in life.facts] == [("sent", "an unknown endpoint"), ("failed", "error")]
