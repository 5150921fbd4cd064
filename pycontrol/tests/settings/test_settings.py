"""Settings: strict files, secrets that never show, complaints that say where and what to do."""

import dataclasses
import importlib
import pkgutil
import re
from dataclasses import FrozenInstanceError, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, get_args, get_origin, get_type_hints

import pytest
from psycopg.conninfo import conninfo_to_dict

import rowpost.settings
from rowpost.database.connection import connect
from rowpost.errors import SettingsError
from rowpost.settings.bridge import BridgeSettings
from rowpost.settings.environment import (
    FEATURES,
    QueueSettings,
    Settings,
    SupervisorSettings,
    WorkerSettings,
    default_data_folder,
    load_settings,
)
from rowpost.settings.metrics import MetricsAddress
from rowpost.settings.secrets import resolve_participants

REPOSITORY = Path(__file__).parents[3]
PRODUCTION = """
environment: production
engine: sqlserver
url: "Server=sql01;Database=shop;UID=app;PWD=${SHOP_PASSWORD}"
queues:
  Sales: {worker: {handler: "shop.handlers:place_order", limit: 8}}
  Billing: {body_string: true, clustered: false}
  error: {}
external:
  Legacy.Orders@[nsb]: {}
supervisor: {error_queue: error, stop_timeout: 45}
"""


SERVER = 'engine: postgresql\nurl: "postgresql://app@db01/shop"\n'


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch):
    for name in ("ROWPOST_ENV", "ROWPOST_DATA", "ROWPOST_ENVIRONMENTS", "SHOP_PASSWORD"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def write(tmp_path):
    """Writes an environment file and returns its path."""

    def write_file(text, name="production.yml"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write_file


def complaint(path):
    with pytest.raises(SettingsError) as caught:
        load_settings(path)
    return str(caught.value)


@pytest.mark.parametrize(("text", "batch"), [("adaptive", "adaptive"), ("off", "off"), ('"off"', "off"), ("20", 20)])
def test_messages_may_share_transactions_adaptively_not_at_all_or_so_many(write, text, batch):
    worker = f'{{handler: "shop:place", batch: {text}, batch_time: 0.2}}'

    settings = load_settings(write(f"queues: {{Sales: {{worker: {worker}}}}}"))

    assert settings.queues[0].worker == WorkerSettings("shop:place", batch=batch, batch_time=0.2)


@pytest.mark.parametrize("text", ["on", "many", "0", "501", "1.5"])
def test_any_other_batch_is_refused(write, text):
    said = complaint(write(f'queues: {{Sales: {{worker: {{handler: "shop:place", batch: {text}}}}}}}'))

    assert "queues.Sales.worker.batch" in said


def test_a_whole_file_becomes_frozen_values(write, monkeypatch):
    monkeypatch.setenv("SHOP_PASSWORD", "secret")

    settings = load_settings(write(PRODUCTION))

    assert (settings.environment, settings.engine, settings.default_schema) == ("production", "sqlserver", "dbo")
    assert settings.url == "Server=sql01;Database=shop;UID=app;PWD=secret"
    assert settings.queues == (
        QueueSettings("Sales", worker=WorkerSettings("shop.handlers:place_order", limit=8)),
        QueueSettings("Billing", body_string=True, clustered=False),
        QueueSettings("error", delayed=False),
        QueueSettings("Legacy.Orders@[nsb]", "external"),
    )
    assert settings.supervisor == SupervisorSettings(stop_timeout=45.0)
    with pytest.raises(FrozenInstanceError):
        settings.engine = "postgresql"


def test_the_repository_s_own_environments_can_be_read(monkeypatch):
    monkeypatch.setenv("ROWPOST_STAGING_PASSWORD", "a")
    monkeypatch.setenv("ROWPOST_PRODUCTION_PASSWORD", "b")

    engines = {p.stem: load_settings(p).engine for p in sorted((REPOSITORY / "deploy" / "environments").glob("*.yml"))}

    assert engines == {"local": "postgresql", "production": "sqlserver", "staging": "postgresql"}


def test_no_configuration_at_all_means_the_embedded_server(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    settings = load_settings(None)

    assert (settings.environment, settings.engine, settings.embedded) == ("local", "postgresql", True)
    assert {queue.name for queue in settings.queues} >= {"Sales", "error", "audit"}


def test_the_default_environment_is_named_by_a_variable(write, tmp_path, monkeypatch):
    write("environment: night\nengine: embedded\n", "night.yml")
    monkeypatch.setenv("ROWPOST_ENVIRONMENTS", str(tmp_path))
    monkeypatch.setenv("ROWPOST_ENV", "night")

    assert load_settings(None).environment == "night"


def test_each_project_has_an_embedded_server_of_its_own(tmp_path, monkeypatch):
    monkeypatch.delenv("ROWPOST_DATA", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "user"))
    folders = {}
    for name in (
        "shop/deploy/environments/local.yml",
        "shop/deploy/environments/test.yml",
        "other/app.yml",
        "other/b/app.yml",
    ):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("engine: embedded\n")
        folders[name] = load_settings(file).data_folder
    local, test, other, inner = folders.values()

    assert local == test
    assert len({local, other, inner}) == 3
    assert [each.parent.name for each in folders.values()] == ["projects"] * 4
    assert (local.name.startswith("shop-"), other.name.startswith("other-")) == (True, True)
    assert load_settings(REPOSITORY / "deploy" / "environments" / "local.yml").data_folder == default_data_folder()
    assert local.parents[1] == default_data_folder()


def test_the_embedded_data_folder_is_named_by_a_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("ROWPOST_DATA", str(tmp_path / "data"))

    assert load_settings(REPOSITORY / "deploy" / "environments" / "local.yml").data_folder == tmp_path / "data"


def test_an_environment_that_does_not_exist_is_named_with_the_nearest(write, tmp_path, monkeypatch):
    write("engine: embedded", "production.yml")
    monkeypatch.setenv("ROWPOST_ENVIRONMENTS", str(tmp_path))

    said = complaint("prodction")

    assert "did you mean production?" in said
    assert str(tmp_path) in said


def test_a_secret_shows_in_no_representation(write, monkeypatch):
    monkeypatch.setenv("SHOP_PASSWORD", "hunter2")

    settings = load_settings(write(PRODUCTION))

    assert "hunter2" in settings.url
    assert not any("hunter2" in text for text in (repr(settings), str(settings), settings.target))
    assert settings.target == "sqlserver sql01/shop"


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("postgresql://app:secret@db01:5432/shop", "postgresql db01:5432/shop"),
        ("postgresql:///shop?host=/run/pg&password=secret", "postgresql localhost/shop"),
    ],
)
def test_the_target_of_a_url_is_told_without_its_secrets(url, target):
    assert Settings(url=url).target == target


@pytest.mark.parametrize(
    "password",
    [
        "hun#ter2",
        "hun?ter2",
        "hun%ter2",
        "hun/ter2",
        "hun@ter2",
        "12/ter2",
        "1@2/ter2",
        "hun:ter2",
        "hun ter2",
        "hun[ter2",
        "hun&ter2",
    ],
)
@pytest.mark.parametrize(
    "url",
    [
        "postgresql://app:{}@db01/shop",
        "postgresql://db01/shop?user=app&password={}",
        "postgresql://db01/shop&password={}",
        "postgresql://app:{}@/shop?host=db01",
    ],
)
def test_no_part_of_a_password_is_shown_however_badly_a_url_is_written(password, url):
    settings = Settings(url=url.format(password))

    assert not re.search("ter2|hun", settings.target)
    if settings.target.endswith("?"):
        with pytest.raises(SettingsError) as refused:
            connect(settings)
        assert not re.search("ter2|hun", str(refused.value))
        assert refused.value.__cause__ is None


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("Server=sql01;Database=shop;UID=app;PWD={hun;Database=ter2}", "sqlserver sql01/shop"),
        ("Server=sql01;Database=shop;PWD=hun;Database=ter2", "sqlserver ?"),
        ("Server=sql01;PWD=hun;ter2", "sqlserver ?"),
        ("Server=sql01;PWD={hun;Server=ter2", "sqlserver ?"),
        ("PWD=hun;ter2;Server=sql01;Database=shop", "sqlserver ?"),
        ("Driver={ODBC Driver 18};Server=tcp:sql01,1433;Database={shop};PWD={a}}b};", "sqlserver tcp:sql01,1433/shop"),
    ],
)
def test_no_part_of_a_password_is_shown_however_badly_an_odbc_string_is_written(url, target):
    assert Settings(engine="sqlserver", url=url).target == target


def test_a_name_of_a_database_that_is_escaped_is_shown():
    assert Settings(url="postgresql://app:x@db01/a%40b").target == "postgresql db01/a@b"


@pytest.mark.parametrize(("value", "state"), [(None, "not set"), ("", "empty")])
def test_a_missing_secret_is_named(write, monkeypatch, value, state):
    if value is not None:
        monkeypatch.setenv("SHOP_PASSWORD", value)
    path = write(PRODUCTION)

    said = complaint(path)

    assert said.startswith(f"{path}: url: ")
    assert f"SHOP_PASSWORD is {state}" in said


@pytest.mark.parametrize(
    ("engine", "template", "value", "url"),
    [
        ("sqlserver", "Server=a;Database=d;PWD=${SHOP_PASSWORD}", "p;w}d", "Server=a;Database=d;PWD={p;w}}d}"),
        ("sqlserver", "Server=a;Database=d;PWD=${SHOP_PASSWORD};App=b", "plain", "Server=a;Database=d;PWD=plain;App=b"),
        ("sqlserver", "${SHOP_PASSWORD}", "Server=a;Database=d;PWD={x;y}", "Server=a;Database=d;PWD={x;y}"),
        ("postgresql", "postgresql://u:${SHOP_PASSWORD}@h/d", "p@s:/?", "postgresql://u:p%40s%3A%2F%3F@h/d"),
        ("postgresql", "${SHOP_PASSWORD}", "postgresql://u:p@h/d", "postgresql://u:p@h/d"),
        ("postgresql", "postgresql://u@${SHOP_PASSWORD}/d", "h:5433", "postgresql://u@h:5433/d"),
        ("postgresql", "postgresql://${SHOP_PASSWORD}/d?user=a@b", "h:5433", "postgresql://h:5433/d?user=a@b"),
        (
            "postgresql",
            "postgresql://h/d?user=u&password=${SHOP_PASSWORD}",
            "a&b%41#=?c@",
            "postgresql://h/d?user=u&password=a%26b%2541%23%3D%3Fc%40",
        ),
        (
            "postgresql",
            "postgresql://h/d?password=${SHOP_PASSWORD}&user=u",
            "a b",
            "postgresql://h/d?password=a%20b&user=u",
        ),
        ("postgresql", "postgresql://h/${SHOP_PASSWORD}", "a?b%41/c", "postgresql://h/a%3Fb%2541%2Fc"),
        (
            "postgresql",
            "postgresql://h/d?${SHOP_PASSWORD}",
            "user=u&sslmode=require",
            "postgresql://h/d?user=u&sslmode=require",
        ),
        (
            "sqlserver",
            "Server=a;Database=d;PWD={${SHOP_PASSWORD}};App=b",
            "p;w}d",
            "Server=a;Database=d;PWD={p;w}}d};App=b",
        ),
        (
            "sqlserver",
            "Server=tcp:${SHOP_PASSWORD},1433;Database=d;App=b",
            "sql01",
            "Server=tcp:sql01,1433;Database=d;App=b",
        ),
    ],
)
def test_a_secret_is_escaped_for_the_place_where_it_stands(write, monkeypatch, engine, template, value, url):
    monkeypatch.setenv("SHOP_PASSWORD", value)

    assert load_settings(write(f'engine: {engine}\nurl: "{template}"')).url == url


def test_a_value_of_an_odbc_string_that_nothing_can_escape_is_refused(write, monkeypatch):
    monkeypatch.setenv("SHOP_PASSWORD", "geheim;Server=x")

    said = complaint(write('engine: sqlserver\nurl: "Server=a;PWD=x${SHOP_PASSWORD}"'))

    assert "SHOP_PASSWORD" in said and "PWD=${SHOP_PASSWORD};" in said and "geheim" not in said


@pytest.mark.parametrize("value", ["a&b%41#=?c@", "p@s:/?", "%zz ü"])
@pytest.mark.parametrize(
    "template", ["postgresql://app:${SHOP_PASSWORD}@h/d", "postgresql://h/d?user=app&password=${SHOP_PASSWORD}"]
)
def test_the_server_gets_the_password_of_a_variable_wherever_it_stands(write, monkeypatch, template, value):
    monkeypatch.setenv("SHOP_PASSWORD", value)

    url = load_settings(write(f'engine: postgresql\nurl: "{template}"')).url

    assert conninfo_to_dict(url) == {"user": "app", "password": value, "host": "h", "dbname": "d"}
    assert resolve_participants({"p": template}) == {"p": url}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://app:geheim@h/d?schema=public", "parameter 'schema', which .* default_schema"),
        ("postgresql://app:geheim@h/d?pgbouncer=true&connection_limit=1", "parameters 'pgbouncer', 'connection_limit'"),
        ("postgresql://app:geheim@h/d?sslmod=require", "'sslmod'.*did you mean sslmode"),
        ("postgresql://app:ge/heim@h/d?schema=public", "Percent-encode"),
        ("postgresql://app:x@h/d?geheim%20=1", "Percent-encode"),
        ("postgresql://app:12/3?geheim=x@h/d", "Percent-encode"),
    ],
)
def test_a_parameter_that_the_driver_does_not_know_is_named_and_no_secret_is(url, expected):
    with pytest.raises(SettingsError, match=expected) as raised:
        connect(Settings(url=url))

    assert "geheim" not in str(raised.value)


@pytest.mark.parametrize("behind", ["schema=public", "sslmode=disable&schema=public&connect_timeout=3"])
def test_a_parameter_behind_the_variable_of_a_password_is_named_too(write, monkeypatch, behind):
    monkeypatch.setenv("SHOP_PASSWORD", "geheim")
    template = "postgresql://h/d?user=app&password=${SHOP_PASSWORD}&" + behind

    said = complaint(write(f'engine: postgresql\nurl: "{template}"'))
    with pytest.raises(SettingsError, match="parameter 'schema'") as raised:
        resolve_participants({"p": template})

    assert "url: The PostgreSQL URL has the parameter 'schema'" in said and "default_schema" in said
    assert "geheim" not in said + str(raised.value)


@pytest.mark.parametrize(
    "url", ["postgresql://h/d?password=ge&heim=1", "postgresql://h/d?password=ge${SHOP_PASSWORD}&heim=1"]
)
def test_what_follows_a_password_that_is_written_out_is_not_named(write, monkeypatch, url):
    monkeypatch.setenv("SHOP_PASSWORD", "x")

    with pytest.raises(SettingsError, match="Percent-encode") as raised:
        connect(load_settings(write(f'engine: postgresql\nurl: "{url}"')))

    assert "heim" not in str(raised.value)


def test_a_question_of_what_was_meant_ends_its_sentence(write, tmp_path, monkeypatch):
    (tmp_path / "stage.yml").write_text("engine: embedded")
    monkeypatch.setenv("ROWPOST_ENVIRONMENTS", str(tmp_path))

    with pytest.raises(SettingsError) as environment:
        load_settings("stag")
    with pytest.raises(SettingsError) as parameter:
        connect(Settings(url="postgresql://app@h/d?sslmod=require"))

    assert "did you mean stage? If not, write stag.yml" in str(environment.value)
    assert "did you mean sslmode? Remove it" in str(parameter.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("engin: embedded", ("engin: unknown key: did you mean engine?",)),
        ("engine: oracle", ("engine: 'oracle' is not one of embedded, postgresql, sqlserver",)),
        ("engine: sqlsrver", ("did you mean sqlserver?",)),
        ("engine: postgresql", ("url: missing",)),
        ("url: postgresql://h/d", ("url: the embedded engine has no url",)),
        ("engine: postgresql\nurl: Server=a;Database=b", ("url: must be a PostgreSQL url",)),
        ("engine: sqlserver\nurl: postgresql://h/d", ("url: must be an ODBC connection string",)),
        ("engine: postgresql\nurl: 7", ("url: must be a text",)),
        ("default_schema: ${SCHEMA}", ("default_schema: ${...} is replaced in url only",)),
        ("roles: database", ("roles: 'database' is not one of none, cluster",)),
        (
            "engine: sqlserver\nurl: Server=a;Database=b\nroles: none",
            ("roles: 'none' is for PostgreSQL only", "remove"),
        ),
        ("compat: v10", ("compat: 'v10' is not one of v1, v2, v3, v4, v5, v6, v7, v8, v9",)),
        ("queues: [Sales]", ("queues: must be a mapping",)),
        ("queues: {Sales: yes}", ("queues.Sales: must be a mapping",)),
        ("queues: {Sales: {body_strin: true}}", ("queues.Sales.body_strin", "did you mean body_string?")),
        ("queues: {Sales: {body_string: 1}}", ("queues.Sales.body_string: must be true or false, not 1",)),
        ("queues: {Sales: {kind: foreign}}", ("queues.Sales.kind: 'foreign' is not one of own, adopted",)),
        ("queues: {No: {}}", ("queues.False: YAML reads this key as bool: put it into quotes",)),
        ("queues: {'': {}}", ("no table name",)),
        ("queues:\n  Sales: {}\n  Sales: {}", ("line 3: Sales is declared twice",)),
        ("queues: {Sales: {}, 'Sales@[public]': {}}", ("is the same queue as queues.Sales",)),
        ("queues: {Sales: {}}\nexternal: {Sales: {}}", ("external.Sales: is the same queue as queues.Sales",)),
        ("queues: {'Sales@[dbo]@[other]': {}}", ("another database",)),
        ("external: {Sales: {worker: {}}}", ("external.Sales.worker", "only send")),
        ("queues: {Sales: {worker: {limit: 8}}}", ("queues.Sales.worker.handler: missing",)),
        ("queues: {Sales: {worker: {handler: shop}}}", ("worker.handler: 'shop' is not of the form module:function",)),
        ("queues: {Sales: {worker: {handler: 'a:b', limit: 0}}}", ("worker.limit: 0 is too small: write 1 or more",)),
        (
            f"queues: {{Sales: {{worker: {{handler: 'a:b', limit: {10**30}}}}}}}",
            ("worker.limit: 1000000000000000000000000000000 is too large: write 10000 or less",),
        ),
        (
            f"queues: {{Sales: {{worker: {{handler: 'a:b', attempts: {2**31}}}}}}}",
            ("worker.attempts: 2147483648 is too large",),
        ),
        (
            "supervisor: {stop_timeout: 1.0e+300}",
            ("supervisor.stop_timeout: 1e+300 s is too long: write 2000000 or less",),
        ),
        ("queues: {Sales: {worker: {handler: 'a:b', limit: 2.5}}}", ("worker.limit: must be a whole number",)),
        ("queues: {Sales: {worker: {handler: 'a:b', limit: true}}}", ("worker.limit: must be a whole number",)),
        ("queues: {Sales: {worker: {handler: 'a:b', attempts: 0}}}", ("worker.attempts: 0 is too small",)),
        ("queues: {Sales: {worker: {handler: 'a:b', delayed_retries: -1}}}", ("worker.delayed_retries: -1",)),
        ("queues: {Sales: {worker: {handler: 'a:b', backoff: cubic}}}", ("worker.backoff", "linear, exponential")),
        (
            "queues: {Sales: {worker: {handler: 'a:b', peek_delay: 0.05}}}",
            ("peek_delay: 0.05 s is too short: write 0.1",),
        ),
        ("queues: {Sales: {worker: {handler: 'a:b', peek_delay: .nan}}}", ("peek_delay: must be a number of seconds",)),
        ("queues: {Sales: {worker: {handler: 'a:b', strategy: pek}}}", ("did you mean peek?",)),
        ("queues: {Sales: {owner: ''}}", ("queues.Sales.owner: must be a text",)),
        (
            "queues: {Sales: {runbook: 'javascript:alert(1)'}}",
            ("queues.Sales.runbook: 'javascript:alert(1)' is not the address of a page",),
        ),
        ("external: {Sales: {runbook: wiki}}", ("external.Sales.runbook: 'wiki' is not the address of a page",)),
        ("message_types: {'Shop.Placed, Shop': {}}", ("message_types.Shop.Placed, Shop: is no message type",)),
        (
            "message_types: {Shop.Placed: {owners: x}}",
            ("message_types.Shop.Placed.owners: unknown key: did you mean owner?",),
        ),
        ("supervisor: {metrics: 70000}", ("supervisor.metrics: 70000 is no address for metrics",)),
        ("log: {level: loud}", ("log.level",)),
        ("log: {levels: info}", ("log.levels",)),
        ("supervisor: {stop_timeout: -1}", ("supervisor.stop_timeout: -1 s is too short",)),
        ("supervisor: {error_queu: e}", ("supervisor.error_queu: unknown key: did you mean error_queue?",)),
        ("7: x", ("7: YAML reads this key as int: put it into quotes",)),
        ("queues: {7: {}}", ("queues.7: YAML reads this key as int",)),
        (
            "queues: {Sales: {worker: {handler: 'a:b', limits: 8}}}",
            ("Sales.worker.limits: unknown key: did you mean limit?",),
        ),
        ("queues: {Sales: {kind: external}}", ("queues.Sales.kind: 'external' is not one of own, adopted: declare",)),
        (
            "queues: {Sales: {partitions: {by: Shop.Key, count: 1}}}",
            ("partitions.count: 1 is too small: write 2 or more",),
        ),
        (
            f"queues: {{Sales: {{partitions: {{by: Shop.Key, count: {10**30}}}}}}}",
            ("partitions.count: 1000000000000000000000000000000 is too large: write 1000 or less",),
        ),
        ("queues: {Sales: {partitions: {count: 4}}}", ("queues.Sales.partitions.by: missing: write a value",)),
        (
            "sagas: {Orders: {correlation: 'order id'}}",
            ("sagas.Orders.correlation: 'order id' is not a property's name",),
        ),
        ("supervisor: {stop_timeout: .inf}", ("supervisor.stop_timeout: must be a number of seconds",)),
        (f"supervisor: {{stop_timeout: {10**400}}}", ("supervisor.stop_timeout: must be a number of seconds",)),
        (
            "engine: {a: &a [*a]}",
            (
                "engine: {'a': ",
                "is not one of embedded",
            ),
        ),
        ("a: 2026-13-45", ("line 1: a value cannot be read",)),
        (f"supervisor: {{stop_timeout: {'9' * 5000}}}", ("line 1: a value cannot be read",)),
        (f"a: {'[' * 3000}{']' * 3000}", ("is nested too deeply",)),
        ("- a list", ("must be a mapping",)),
        ("a: [", ("line 1",)),
    ],
)
def test_a_mistake_is_told_with_file_and_key_and_remedy(write, text, expected):
    path = write(text)

    said = complaint(path)

    assert said.startswith(f"{path}: ")
    assert all(part in said for part in expected), said


@pytest.mark.parametrize(
    "text",
    [
        f"engine: {'x' * 30_000}",
        f"{'x' * 30_000}: 1",
        f"queues: {{Sales: {{worker: {{handler: 'a:b', {'x' * 30_000}: 1}}}}}}",
        "a: &a [x, x, x, x, x, x]\n"
        + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 6)}]\n" for a, b in pairwise("abcdefghi"))
        + "engine: *i",
        f"supervisor: {{stop_timeout: 'a{'b' * 30_000}'}}",
    ],
    ids=["value", "key", "inner key", "aliases of aliases", "wrong type"],
)
def test_no_error_repeats_a_long_text_of_the_file(write, text):
    assert len(complaint(write(text))) < 600


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n"])
def test_an_empty_file_is_refused(write, text):
    assert "production.yml: is empty" in complaint(write(text))


def test_an_own_queue_cannot_lie_in_another_database(write):
    path = write('engine: sqlserver\nurl: "Server=a;Database=b"\nqueues: {"Sales@[dbo]@[other]": {}}')

    assert "queues.Sales@[dbo]@[other]: " in complaint(path)


@pytest.mark.parametrize("engine", ["embedded", 'sqlserver\nurl: "Server=a;Database=d"'])
def test_names_that_differ_only_in_how_an_accent_is_composed_are_one_queue(write, engine):
    composed, decomposed = "Caf\u00e9", "Cafe\u0301"

    assert "is the same queue as" in complaint(
        write(f"engine: {engine}\nqueues: {{{composed}: {{}}, {decomposed}: {{}}}}")
    )


def test_names_that_differ_in_case_are_one_queue_on_sql_server_and_two_on_postgresql(write):
    queues = "queues: {Sales: {}, sales: {}}"

    on_postgresql = load_settings(write(f"engine: embedded\n{queues}"))

    assert [queue.name for queue in on_postgresql.queues] == ["Sales", "sales"]
    assert "is the same queue" in complaint(write(f'engine: sqlserver\nurl: "Server=a;Database=b"\n{queues}'))


@pytest.mark.parametrize("section", ["{}", "engine: embedded\noutbox: {{shop: {{{}}}}}"])
@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("Server=a;Initial Catalog=shop;UID=u;PWD=p3", ("'Initial Catalog'", "write Database")),
        ("server=a;Database=b; User ID =u;PWD=p3", ("'User ID'", "write UID")),
        ("Server=a;Database=b;UID=u;Password=p3", ("'Password'", "write PWD")),
        ("Data Source=a;Database=b;UID=u;PWD=p3", ("'Data Source'", "write Server")),
        ("Server=a;Database=b;Integrated Security=True", ("'Integrated Security'", "write Trusted_Connection")),
        ("Server=a;Database=b;TrustServerCertificate=True", ("'TrustServerCertificate'", "=yes")),
        ("Server=a;Database=b;Encrypt=yes;Encrypt=true", ("'Encrypt'", "=yes")),
        ("Server=a;UID=u;PWD={p3;Database=x}", ("names no Database",)),
        ("Server=;Database=b;UID=u;PWD=p3", ("ODBC connection string",)),
        ("Server=a;Database=b;PWD=x;p3;UID=u", ("ODBC connection string", "stands in braces")),
        ("Database=b;UID=u;PWD=p3", ("ODBC connection string",)),
    ],
)
def test_a_connection_string_that_odbc_reads_otherwise_is_refused_by_name(write, section, text, named):
    url = f'url: "{text}"'
    file = section.format(url) if "outbox" in section else f"engine: sqlserver\n{url}\n"

    said = complaint(write(file))

    assert all(part in said for part in named)
    assert "p3" not in said


def test_a_value_in_braces_and_a_data_source_name_are_no_keywords_of_ado_net(write):
    for text in ("Server=a;Database=b;UID=u;PWD={x;Initial Catalog=y}", "DSN=shop;UID=u;PWD=p"):
        assert load_settings(write(f'engine: sqlserver\nurl: "{text}"\n')).url == text


SERVERS = {"postgresql": "postgresql://app@db01/shop", "sqlserver": "Server=sql01;Database=shop"}


@pytest.mark.parametrize(
    ("text", "has_roles"),
    [
        ("engine: embedded", False),
        ("engine: embedded\nroles: cluster", True),
        (f"engine: postgresql\nurl: {SERVERS['postgresql']}", True),
        (f"engine: postgresql\nurl: {SERVERS['postgresql']}\nroles: none", False),
        (f"engine: sqlserver\nurl: {SERVERS['sqlserver']}", True),
        (f"engine: sqlserver\nurl: {SERVERS['sqlserver']}\nroles: cluster", True),
        # for the outbox; SQL Server's roles are made all the same
        (
            f"engine: sqlserver\nurl: {SERVERS['sqlserver']}\nroles: none\n"
            f"outbox: {{shop: {{url: {SERVERS['postgresql']}}}}}",
            True,
        ),
    ],
)
def test_the_embedded_server_has_no_roles_unless_they_are_asked_for_and_every_other_has(write, text, has_roles):
    assert load_settings(write(text)).has_roles == has_roles


def test_every_default_name_is_in_the_default_schema_as_a_written_one(write):
    written = "supervisor: {error_queue: error}\nsubscription_table: SubscriptionRouting\n"

    by_default = load_settings(write("default_schema: nsb\nqueues: {error: {}, audit: {}}\n"))
    as_written = load_settings(write("default_schema: nsb\nqueues: {error: {}, audit: {}}\n" + written))

    assert (by_default.supervisor, by_default.subscription_table) == (
        as_written.supervisor,
        as_written.subscription_table,
    )
    assert by_default.supervisor.error_queue == "error@[nsb]"
    assert by_default.queue(by_default.supervisor.error_queue) is not None


def test_names_are_canonical_whatever_the_default_schema(write):
    text = "default_schema: nsb\nqueues: {Sales: {}, 'Billing@[public]': {}}\nsupervisor: {error_queue: failed}"

    settings = load_settings(write(text))

    assert [queue.name for queue in settings.queues] == ["Sales@[nsb]", "Billing"]
    assert settings.supervisor.error_queue == "failed@[nsb]"


@pytest.mark.parametrize(("compat", "strategy"), [("v1", "fixed"), ("v2", "adaptive"), ("v3", "peek"), ("v9", "peek")])
def test_the_ramp_follows_the_transport_that_the_environment_is_compatible_with(write, compat, strategy):
    path = write(f"compat: {compat}\nqueues: {{Sales: {{worker: {{handler: 'a:b'}}}}}}")

    assert load_settings(path).queues[0].worker.strategy == strategy


def test_a_secondary_queue_has_one_worker_unless_told_otherwise(write):
    path = write("queues: {Replies: {worker: {handler: 'a:b', secondary: true}}}")

    assert load_settings(path).queues[0].worker.limit == 1
    assert (WorkerSettings("a:b", secondary=True).limit, WorkerSettings("a:b", secondary=True, limit=3).limit) == (1, 3)
    assert (WorkerSettings("a:b").limit, replace(WorkerSettings("a:b", exclusive=True), limit=8).limit) == (4, 1)


@pytest.mark.parametrize(
    ("written", "clustered"),
    [("", True), ("compat: v5", True), ("compat: v6", False), ("compat: v9", False)],
)
def test_new_tables_are_clustered_as_the_transport_did_it_where_compat_is_written_down(write, written, clustered):
    path = write(f"{written}\nqueues: {{Sales: {{}}, Billing: {{clustered: true}}}}")

    queues = load_settings(path).queues

    assert [queue.clustered for queue in queues] == [clustered, True]


def test_features_are_those_that_the_file_names(write):
    settings = load_settings(write(SERVER + "features: [spark, outbox]\n"))

    assert settings.features == ("spark", "outbox")


@pytest.mark.parametrize("text", ["", "features: []\n"])
def test_an_environment_on_a_server_has_no_feature_that_it_does_not_name(write, text):
    assert load_settings(write(SERVER + text)).features == ()


def test_the_embedded_default_has_every_feature(write):
    assert load_settings(None).features == FEATURES
    assert load_settings(write("engine: embedded\n")).features == FEATURES
    assert load_settings(write("engine: embedded\nfeatures: []\n")).features == ()


@pytest.mark.parametrize(("text", "said"), [
    ("[sparc]", "features: 'sparc' is not one of maintenance, outbox, sagas, schedules, spark, transactions: did you mean spark?"),
    ("[spark, 3]", "features: 3 is not one of maintenance, outbox, sagas, schedules, spark, transactions"),
    ("[delayed]", "features: 'delayed' is not one of"),
    ("spark", "features: must be a list of texts"),
    ("{spark: true}", "features: must be a list of texts"),
])  # fmt: skip
def test_an_unknown_feature_is_refused_with_the_list(write, text, said):
    assert said in complaint(write(SERVER + f"features: {text}\n"))


def test_the_queues_of_copies_have_no_delayed_table_unless_they_ask_for_it(write):
    text = "queues: {Sales: {}, failed: {}, error: {}, audit: {delayed: true}, Audit: {}}\nsupervisor: {error_queue: failed}\n"

    settings = load_settings(write(SERVER + text))

    assert [queue.name for queue in settings.queues if queue.delayed] == ["Sales", "audit", "Audit"]


def test_a_queue_has_a_table_of_leases_if_it_declares_one(write):
    settings = load_settings(write("queues: {Reports: {lease: true}, Sales: {}}\n"))

    assert [(queue.name, queue.lease) for queue in settings.queues] == [("Reports", True), ("Sales", False)]


def test_an_error_queue_with_a_worker_has_a_delayed_table(write):
    settings = load_settings(write(SERVER + 'queues: {error: {worker: {handler: "shop:failed"}}}\n'))

    assert settings.queues[0].delayed


@pytest.mark.parametrize(("written", "expected"), [("true", True), ("false", False), ("everybody", "everybody")])
def test_wake_ups_are_on_off_or_for_everybody(write, written, expected):
    assert load_settings(write(SERVER + f"supervisor: {{wake_up: {written}}}\n")).supervisor.wake_up == expected


@pytest.mark.parametrize("written", ["everyone", "1", "[everybody]"])
def test_any_other_wake_up_is_refused_with_what_can_be_written(write, written):
    assert "supervisor.wake_up: must be true, false or everybody, not " in complaint(
        write(SERVER + f"supervisor: {{wake_up: {written}}}\n")
    )


def test_wake_up_for_everybody_is_refused_on_sql_server(write):
    path = write('engine: sqlserver\nurl: "Server=sql01;Database=shop"\nsupervisor: {wake_up: everybody}\n')

    assert complaint(path).endswith(
        "supervisor.wake_up: 'everybody' is for PostgreSQL only, because SQL Server has no NOTIFY: write true, and a shorter `peek_delay` "
        "at the workers of queues whose messages must not wait"
    )


def test_every_number_of_settings_has_a_smallest_and_a_largest_value():
    read_from_others, free = {MetricsAddress, BridgeSettings}, []
    for module in pkgutil.iter_modules(rowpost.settings.__path__, "rowpost.settings."):
        classes = vars(importlib.import_module(module.name)).values()
        for cls in {
            each for each in classes if dataclasses.is_dataclass(each) and each.__module__ == module.name
        } - read_from_others:
            for name, hint in get_type_hints(cls, include_extras=True).items():
                for each in (hint, *get_args(hint)) if get_origin(hint) is not Annotated else (hint,):
                    bounds = getattr(each, "__metadata__", None)
                    number = (each if bounds is None else get_args(each)[0]) in (int, float)
                    if number and (bounds is None or bounds[0].le is None or bounds[0].ge is None):
                        free.append(f"{cls.__name__}.{name}")

    assert sorted(free) == ["SupervisorSettings.metrics", "WorkerSettings.batch"], (
        "which read_metrics_address and check_batch check"
    )
