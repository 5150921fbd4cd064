"""The drivers' errors as rowpost's: by number and SQLSTATE, with the drivers' own error objects."""

import psycopg
import pytest
from psycopg import errors as pg

from rowpost import errors
from rowpost.database.dialects import postgresql
from rowpost.database.dialects.choice import dialect_for

SQLSERVER = {
    1205: errors.Deadlock, 1222: errors.LockTimeout, 3960: errors.Deadlock, 3961: errors.Deadlock,
    64: errors.DatabaseUnavailable, 233: errors.DatabaseUnavailable, 10053: errors.DatabaseUnavailable,
    10054: errors.DatabaseUnavailable, 10060: errors.DatabaseUnavailable, 10928: errors.DatabaseUnavailable,
    10929: errors.DatabaseUnavailable, 40143: errors.DatabaseUnavailable, 40197: errors.DatabaseUnavailable,
    40501: errors.DatabaseUnavailable, 40540: errors.DatabaseUnavailable, 40613: errors.DatabaseUnavailable,
    42108: errors.DatabaseUnavailable, 42109: errors.DatabaseUnavailable, 49918: errors.DatabaseUnavailable,
    49919: errors.DatabaseUnavailable, 49920: errors.DatabaseUnavailable, 3906: errors.DatabaseUnavailable,
    983: errors.DatabaseUnavailable, 978: errors.DatabaseUnavailable,
    18456: errors.LoginRefused, 4060: errors.LoginRefused, 229: errors.PermissionDenied, 262: errors.PermissionDenied,
    51001: errors.QueueNotFound, 51007: errors.ScriptEdited, 51008: errors.SchemaTooNew, 8134: errors.DatabaseError,
}  # fmt: skip
POSTGRESQL = {
    pg.DeadlockDetected: errors.Deadlock, pg.SerializationFailure: errors.Deadlock, pg.LockNotAvailable: errors.LockTimeout,
    pg.AdminShutdown: errors.DatabaseUnavailable, pg.CrashShutdown: errors.DatabaseUnavailable,
    pg.CannotConnectNow: errors.DatabaseUnavailable, pg.TooManyConnections: errors.DatabaseUnavailable,
    pg.ConnectionFailure: errors.DatabaseUnavailable, pg.ReadOnlySqlTransaction: errors.DatabaseUnavailable,
    pg.InvalidPassword: errors.LoginRefused, pg.InvalidCatalogName: errors.LoginRefused,
    pg.InsufficientPrivilege: errors.PermissionDenied, pg.UndefinedColumn: errors.DatabaseError,
}  # fmt: skip


@pytest.mark.parametrize(("number", "kind"), SQLSERVER.items())
def test_a_number_of_sql_server_is_one_of_our_errors(number, kind):
    driver = Exception(
        "42000", f"[42000] [Microsoft][ODBC Driver 18 for SQL Server][SQL Server]What happened. ({number}) (SQLExecDirectW)"
    )

    error = dialect_for("sqlserver").translate(driver)

    assert type(error) is kind
    assert "What happened" in str(error)


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
        postgresql.check_version(number)


@pytest.mark.parametrize("number", [140000, 150003, 180001])
def test_a_supported_postgresql_is_not_refused(number):
    postgresql.check_version(number)


@pytest.mark.parametrize("version", ["10.50.1600", "11.00.2100", "12.00.2000"])
def test_an_old_sql_server_is_refused_by_version(version):
    from rowpost.database.dialects import sqlserver

    with pytest.raises(errors.UnsupportedServer, match="2016"):
        sqlserver.check_version(version, lambda: False)


def test_azure_and_what_is_new_enough_is_not_refused():
    from rowpost.database.dialects import sqlserver

    sqlserver.check_version("12.00.2000", lambda: True)
    sqlserver.check_version("13.00.5026", lambda: False)
    sqlserver.check_version("16.00.1000", lambda: False)
