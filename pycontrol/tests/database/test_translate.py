"""The drivers' errors as rowpost's: by number and SQLSTATE, with the drivers' own error objects."""

import psycopg
import pytest
from psycopg import errors as pg

from rowpost import errors
from rowpost.database.connection import connect_url
from rowpost.database.contract import load_contract
from rowpost.database.dialects.choice import dialect_for
from rowpost.database.dialects.postgresql.session import check_version
from rowpost.database.dialects.sqlserver.odbc import connection_string

SQLSERVER = {
    1205: errors.Deadlock, 1222: errors.LockTimeout, 3960: errors.Deadlock, 3961: errors.Deadlock,
    64: errors.DatabaseUnavailable, 233: errors.DatabaseUnavailable, 10053: errors.DatabaseUnavailable,
    10054: errors.DatabaseUnavailable, 10060: errors.DatabaseUnavailable, 10928: errors.DatabaseUnavailable,
    10929: errors.DatabaseUnavailable, 40143: errors.DatabaseUnavailable, 40197: errors.DatabaseUnavailable,
    40501: errors.DatabaseUnavailable, 40540: errors.DatabaseUnavailable, 40613: errors.DatabaseUnavailable,
    42108: errors.DatabaseUnavailable, 42109: errors.DatabaseUnavailable, 49918: errors.DatabaseUnavailable,
    49919: errors.DatabaseUnavailable, 49920: errors.DatabaseUnavailable, 3906: errors.DatabaseUnavailable,
    983: errors.DatabaseUnavailable, 978: errors.DatabaseUnavailable,
    **dict.fromkeys((586, 596, 945, 976, 982, 4221, 6005, 8179, 10936, 18401, 40544, 40549, 40552), errors.DatabaseUnavailable),
    **dict.fromkeys((1105, 9002), errors.DatabaseUnavailable), **dict.fromkeys((701, 1204, 8645), errors.Deadlock),
    **dict.fromkeys((15151, 15404, 15517), errors.PermissionDenied),
    18456: errors.LoginRefused, 4060: errors.LoginRefused, 229: errors.PermissionDenied, 262: errors.PermissionDenied,
    51001: errors.QueueNotFound, 51007: errors.ScriptEdited, 51008: errors.SchemaTooNew, 8134: errors.DatabaseError,
}  # fmt: skip
POSTGRESQL = {
    pg.DeadlockDetected: errors.Deadlock, pg.SerializationFailure: errors.Deadlock, pg.LockNotAvailable: errors.LockTimeout,
    pg.AdminShutdown: errors.DatabaseUnavailable, pg.CrashShutdown: errors.DatabaseUnavailable,
    pg.CannotConnectNow: errors.DatabaseUnavailable, pg.TooManyConnections: errors.DatabaseUnavailable,
    pg.ConnectionFailure: errors.DatabaseUnavailable, pg.ReadOnlySqlTransaction: errors.DatabaseUnavailable,
    pg.InvalidPassword: errors.LoginRefused, pg.InvalidCatalogName: errors.LoginRefused,
    pg.InsufficientPrivilege: errors.PermissionDenied, pg.DiskFull: errors.DatabaseUnavailable, pg.UndefinedColumn: errors.DatabaseError,
}  # fmt: skip


@pytest.mark.parametrize(("number", "kind"), SQLSERVER.items())
def test_a_number_of_sql_server_is_one_of_our_errors(number, kind):
    driver = Exception(
        "42000",
        f"[42000] [Microsoft][ODBC Driver 18 for SQL Server][SQL Server]What happened. ({number}) (SQLExecDirectW)",
    )

    error = dialect_for("sqlserver").translate(driver)

    assert type(error) is kind
    assert "What happened" in str(error)


#: numbers, and a word that says what to do
ADVICE = {
    976: "listener", 978: "ApplicationIntent", 982: "listener", 983: "listener", 3906: "primary", 4221: "primary", 596: "again", 6005: "again",
    945: "error log", 18401: "upgrade", 10928: "fewer workers", 10929: "fewer workers", 10936: "fewer workers", 40501: "again",
    40613: "again", 40197: "again", 49918: "again", 49919: "again", 49920: "again", 40552: "batch", 9002: "log_reuse_wait_desc",
    1105: "filegroup", 40544: "Enlarge", 1204: "smaller batches", 701: "run it again", 8645: "run it again",
    15151: "doctor", 2760: "CREATE SCHEMA",
}  # fmt: skip


@pytest.mark.parametrize(("number", "words"), ADVICE.items())
def test_the_last_sentence_says_what_to_do(number, words):
    error = dialect_for("sqlserver").translate(
        Exception("42000", f"[42000] [Microsoft][SQL Server]What happened. ({number}) (SQLExecDirectW)")
    )

    assert words in str(error).removeprefix("What happened.")


@pytest.mark.parametrize("number", [18401, 40613, 983, 10928])
def test_a_refused_login_during_a_failover_or_upgrade_is_tried_again(number):
    """The server refuses the login with the state of a wrong password, and with a second record."""
    one = Exception("28000", f"[28000] [Microsoft][SQL Server]Not now. ({number}) (SQLDriverConnect)")
    two = Exception(
        "42000",
        f"[42000] [Microsoft][SQL Server]Cannot open. (4060) (SQLDriverConnect); [42000] [Microsoft][SQL Server]Not now. ({number}) (SQLDriverConnect)",
    )

    for each in (one, two):
        error = dialect_for("sqlserver").translate(each)

        assert type(error) is errors.DatabaseUnavailable
        assert "moment: Not now. " in str(error)


def test_a_full_disk_of_postgresql_says_what_is_stored_and_what_to_do():
    error = dialect_for("postgresql").translate(
        pg.DiskFull('could not extend file "base/5/16384": No space left on device')
    )

    assert "No space left on device. Nothing was stored. An administrator adds space" in str(error)


def _statement(name: str, queue: str):
    return dialect_for("sqlserver").spell(load_contract().find_template(name), queue, queue)


def test_a_hint_that_fails_names_the_index_of_the_queue_or_of_the_saga():
    driver = Exception("42000", "[42000] [Microsoft][SQL Server]No plan because of the hints. (8622) (SQLExecDirectW)")

    queue = dialect_for("sqlserver").translate(driver, _statement("receive_messages", "Sales"))
    saga = dialect_for("sqlserver").translate(driver, _statement("load_saga", "Order"))

    assert "RowVersion" in str(queue) and "queue check" in str(queue)
    assert "saga" in str(saga) and "rowpost verify" in str(saga) and "RowVersion" not in str(saga)


@pytest.mark.parametrize(
    ("name", "kind"), [("dbo.Sales", errors.QueueNotFound), ("rowpost.queue", errors.SchemaMissing)]
)
def test_a_missing_table_in_a_batch_is_a_queue_or_the_deployment(name, kind):
    driver = Exception("42S02", f"[42S02] [Microsoft][SQL Server]Invalid object name '{name}'. (208) (SQLExecDirectW)")

    assert type(dialect_for("sqlserver").translate(driver)) is kind


@pytest.mark.parametrize(
    "setting",
    ["MARS_Connection=yes", "mars_connection = YES", "Mars_Connection={Yes}", "MultipleActiveResultSets=true"],
)
@pytest.mark.parametrize(
    "place", ["{};Server=127.0.0.1,1", "Server=127.0.0.1,1;{}", "Driver={{none}};Server=127.0.0.1,1;{};UID=a"]
)
def test_mars_is_refused_before_connecting(setting, place):
    with pytest.raises(errors.SettingsError, match="Remove MARS_Connection"):
        connect_url("sqlserver", place.format(setting))


def test_mars_that_is_off_is_not_refused():
    assert "MARS_Connection=no" in connection_string("Driver={x};Server=s;MARS_Connection=no", "rowpost")


UNTRUSTED = [
    "[08001] [Microsoft][ODBC Driver 18 for SQL Server]SSL Provider: [error:0A000086:SSL routines::certificate verify failed:self-signed "
    "certificate] (-1) (SQLDriverConnect)",
    "[08001] [Microsoft][ODBC Driver 18 for SQL Server]SSL Provider: [error:1416F086:SSL routines:tls_process_server_certificate:certificate "
    "verify failed:unable to get local issuer certificate] (-1) (SQLDriverConnect)",
    "[08001] [Microsoft][ODBC Driver 18 for SQL Server]SSL Provider: The certificate chain was issued by an authority that is not trusted.\r\n "
    "(-2146893019) (SQLDriverConnect); [08001] [Microsoft][ODBC Driver 18 for SQL Server]Client unable to establish connection (-2146893019)",
    "[08001] [Microsoft][ODBC Driver 18 for SQL Server]SSL Provider: The target principal name is incorrect.\r\n (-2146893022) (SQLDriverConnect)",
]


@pytest.mark.parametrize("said", UNTRUSTED)
def test_a_certificate_that_is_not_trusted_is_a_setting_and_no_outage(said):
    error = dialect_for("sqlserver").translate(Exception("08001", said))

    assert type(error) is errors.SettingsError
    assert "TrustServerCertificate=yes" in str(error) and "certificate that this machine trusts" in str(error)


def test_a_connection_that_breaks_below_tls_is_an_outage():
    said = "[08001] [Microsoft][ODBC Driver 18 for SQL Server]SSL Provider: An existing connection was forcibly closed by the remote host. (10054)"

    assert type(dialect_for("sqlserver").translate(Exception("08001", said))) is errors.DatabaseUnavailable


@pytest.mark.parametrize("number", [40615, 40914, 47073])
def test_the_firewall_of_azure_is_a_setting_and_no_outage(number):
    said = f"[42000] [Microsoft][SQL Server]Cannot open server 'shop' requested by the login. ({number}) (SQLDriverConnect)"

    error = dialect_for("sqlserver").translate(Exception("42000", said))

    assert type(error) is errors.SettingsError
    assert "firewall" in str(error) and "ODBC driver" not in str(error)


@pytest.mark.parametrize("state", ["08001", "08S01", "HYT00", "HYT01"])
def test_a_connection_that_breaks_without_a_number_means_unavailable(state):
    error = dialect_for("sqlserver").translate(Exception(state, f"[{state}] [Microsoft] TCP Provider (0)"))

    assert type(error) is errors.DatabaseUnavailable


@pytest.mark.parametrize(("driver", "kind"), POSTGRESQL.items())
def test_a_sqlstate_of_postgresql_is_one_of_our_errors(driver, kind):
    error = dialect_for("postgresql").translate(driver("What happened"))

    assert type(error) is kind


def test_a_lost_connection_without_a_sqlstate_means_unavailable():
    error = dialect_for("postgresql").translate(psycopg.OperationalError("server closed the connection unexpectedly"))

    assert type(error) is errors.DatabaseUnavailable


@pytest.mark.parametrize("number", [90624, 130012])
def test_an_old_postgresql_is_refused_by_version(number):
    with pytest.raises(errors.UnsupportedServer, match=f"PostgreSQL {number // 10000}.*needs PostgreSQL 14"):
        check_version(number)


@pytest.mark.parametrize("number", [140000, 150003, 180001])
def test_a_supported_postgresql_is_not_refused(number):
    check_version(number)


@pytest.mark.parametrize("version", ["10.50.1600", "11.00.2100", "12.00.2000", "13.00.1601"])
def test_an_old_sql_server_is_refused_by_version(version):
    from rowpost.database.dialects.sqlserver import dialect as sqlserver

    with pytest.raises(errors.UnsupportedServer, match="2016"):
        sqlserver.check_version(version, lambda: False)


def test_azure_and_what_is_new_enough_is_not_refused():
    from rowpost.database.dialects.sqlserver import dialect as sqlserver

    sqlserver.check_version("12.00.2000", lambda: True)
    sqlserver.check_version("13.00.5026", lambda: False)
    sqlserver.check_version("16.00.1000", lambda: False)


def test_an_identity_of_sql_server_that_is_used_up_is_no_wrong_number_of_the_callers():
    said = "[22003] [Microsoft][SQL Server]Arithmetic overflow error converting IDENTITY to data type int. (8115) (SQLExecDirectW)"

    error = dialect_for("sqlserver").translate(Exception("22003", said))

    assert type(error) is errors.DatabaseError
    assert "rowpost queue check" in str(error)
