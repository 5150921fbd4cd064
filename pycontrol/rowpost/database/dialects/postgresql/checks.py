"""What `rowpost doctor` checks on a PostgreSQL server: what managed servers, replicas and poolers often do not allow.

Nothing is changed. Rights that only a deployment needs are a note if rowpost is deployed, because the login of a
supervisor needs none of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import psycopg

from rowpost.database.dialects.postgresql.pooling import is_pooled
from rowpost.database.dialects.protocol import Check
from rowpost.database.dialects.relations import HAS_ROLES
from rowpost.errors import UnsupportedServer

__all__ = [
    "CONNECTION_LIMIT", "EXECUTABLE", "READ_ONLY_REMEDY", "check_encoding", "checks", "encoding_limits",
    "session_limits",
]  # fmt: skip

_ENCODING_REMEDY = (
    "create another database for the queues: CREATE DATABASE … ENCODING 'UTF8' LOCALE 'C.UTF-8' TEMPLATE template0"
)

#: the rendered names of the procedures in a list that the login may execute
EXECUTABLE = (
    "SELECT p.proname::text FROM pg_catalog.pg_proc AS p"
    " WHERE p.pronamespace = to_regnamespace('rowpost') AND split_part(p.proname, ':', 1) = ANY(%s)"
    " AND has_function_privilege(p.oid, 'EXECUTE')"
)

READ_ONLY_REMEDY = "name the primary in the url, or all servers and target_session_attrs=read-write"

_SERVER = (
    "SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only')::boolean, "
    "current_setting('max_prepared_transactions')::integer"
)
#: who owns rowpost's objects, or would after a first deployment
_OWNER = (
    "SELECT quote_ident(r.rolname), r.rolname = current_user, pg_has_role(r.oid, 'USAGE'), pg_has_role(r.oid, "
    "'pg_read_all_stats', 'USAGE') FROM pg_roles AS r WHERE r.oid = coalesce((SELECT n.nspowner FROM pg_namespace AS "
    "n WHERE n.nspname = 'rowpost'), to_regrole(quote_ident(current_user)))"
)
#: the statements that an administrator runs, one a missing right
_MISSING = """
SELECT format('GRANT CREATE ON DATABASE %%I TO %%I;', current_database(), current_user)
WHERE NOT has_database_privilege(current_database(), 'CREATE')
UNION ALL
SELECT format('GRANT CREATE ON SCHEMA %%I TO %%I;', n.nspname, current_user)
FROM pg_namespace AS n
WHERE n.nspname = ANY (%(schemas)s::text[]) AND NOT has_schema_privilege(n.oid, 'CREATE')
"""
#: the same for the roles of the cluster
_MISSING_ROLES = """
SELECT format('CREATE ROLE %I;', r.name)
FROM unnest(ARRAY['rowpost_endpoint', 'rowpost_operator', 'rowpost_reader', 'rowpost_body_reader']) AS r (name)
WHERE to_regrole(r.name) IS NULL
  AND NOT (SELECT u.rolcreaterole OR u.rolsuper FROM pg_roles AS u WHERE u.rolname = current_user)
UNION ALL
SELECT format('GRANT %I TO %I WITH ADMIN OPTION;', r.rolname, current_user)
FROM pg_roles AS r
JOIN pg_roles AS u ON u.rolname = current_user
WHERE r.rolname = 'rowpost_endpoint'
  AND NOT pg_has_role(r.oid, 'MEMBER WITH ADMIN OPTION')
  AND NOT (u.rolcreaterole AND current_setting('server_version_num')::integer < 160000)
"""

#: slots by which streams of an earlier version read the server's log
_SLOTS = """
SELECT s.slot_name::text,
    pg_size_pretty(pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, s.restart_lsn)),
    format('SELECT pg_drop_replication_slot(%L);', s.slot_name)
FROM pg_catalog.pg_replication_slots AS s
WHERE s.plugin = 'pgoutput' AND s.database = current_database() AND starts_with(s.slot_name, 'rowpost_')
ORDER BY s.slot_name
"""  # noqa: E501

#: reserved_connections is new in 16; a limit of -1 is none
CONNECTION_LIMIT = (
    "SELECT least(current_setting('max_connections')::integer - CASE WHEN r.rolsuper THEN 0 ELSE "
    "current_setting('superuser_reserved_connections')::integer + "
    "coalesce(current_setting('reserved_connections', true)::integer, 0) END, nullif(r.rolconnlimit, -1), "
    "nullif(d.datconnlimit, -1)) FROM pg_roles AS r, pg_database AS d "
    "WHERE r.rolname = current_user AND d.datname = current_database()"
)

#: settings with which the server ends a session whose transaction is idle, or lasts, for too long. transaction_timeout
#: is new in 17.
_LIMITS = (
    "SELECT s.name, s.setting || coalesce(' ' || s.unit, ''), s.source, quote_ident(current_user), "
    "quote_ident(current_database()) FROM pg_settings AS s WHERE s.name IN ('idle_in_transaction_session_timeout', "
    "'transaction_timeout') AND s.setting <> '0' ORDER BY s.name"
)
#: where such a setting is set, by pg_settings.source
_PLACES = {
    "user": "for the role {user}",
    "database": "for the database {database}",
    "database user": "for the role {user} in the database {database}",
    "client": "by the options of the url or of PGOPTIONS",
}


def session_limits(connection: psycopg.Connection) -> Iterator[tuple[str, str]]:
    """Yield what ends the session of a handler that works for long: what is set where, and what to do."""
    for name, value, source, user, database in connection.execute(_LIMITS, prepare=False).fetchall():
        place = _PLACES.get(source, f"in the {source}").format(user=user, database=database)
        scope = "" if source == "user" else f" IN DATABASE {database}"
        remedy = "change it there" if source == "client" else f"run ALTER ROLE {user}{scope} SET {name} = 0;"
        yield (
            f"{name} is {value}, set {place}",
            f"the session of a handler that works longer is ended, which is a failed attempt: {remedy} Or give the "
            "endpoint receive='lease', which holds no transaction while a handler works.",
        )


def check_encoding(connection: psycopg.Connection) -> None:
    """Check that the database can store every message, and that everybody can read what others have stored.

    A header or a body may hold any character. In SQL_ASCII the server converts and checks nothing, so that clients
    store texts of several encodings side by side. The other encodings do not have every character.

    Raises:
        UnsupportedServer: the database is not encoded in UTF-8.
    """
    found = _encoding(connection)
    if found.state != "ok":
        raise UnsupportedServer(
            f"The database {connection.info.dbname!r} cannot have queues: {found.found}. Nothing was changed: "
            f"{found.advice}"
        )


def encoding_limits(connection: psycopg.Connection) -> list[str]:
    """Say what does not work in a database that is not encoded in UTF-8, and what to do; nothing of one that is."""
    found = _encoding(connection)
    if found.state == "ok":
        return []
    unreadable = "A message whose headers are not text moves to the error queue."
    return [
        f"The database {connection.info.dbname!r} is not made for queues: {found.found}. {unreadable} To end this, "
        f"{found.advice}"
    ]


def _encoding(connection: psycopg.Connection) -> Check:
    encoding = connection.info.parameter_status("server_encoding") or "UTF8"
    if encoding == "UTF8":
        return Check("encoding", "ok", "the database is encoded in UTF-8")
    why = (
        "the server stores bytes without checking them"
        if encoding == "SQL_ASCII"
        else "not every character of a message can be stored"
    )
    return Check("encoding", "bad", f"its encoding is {encoding}, in which {why}", _ENCODING_REMEDY)


def checks(connection: psycopg.Connection, schemas: Sequence[str], *, roles: bool) -> Iterator[Check]:
    """Check a server on which queues in these schemas are, or are to be, deployed, with the cluster's roles or without.

    Raises:
        psycopg.Error: the connection was lost.
    """
    recovery, read_only, prepared = connection.execute(_SERVER, prepare=False).fetchone()  # type: ignore[misc]
    yield _writable(recovery, read_only)
    yield _encoding(connection)
    if is_pooled(connection):
        yield Check(
            "pooler", "ok", "a pooler answers, and each connection keeps its session (PgBouncer's session mode)"
        )
    yield _two_phase(prepared)
    for found, advice in session_limits(connection):
        yield Check("session limits", "note", found, advice)
    owner, owns, member, sees = connection.execute(_OWNER, prepare=False).fetchone()  # type: ignore[misc]
    if owns:
        deployed = connection.execute("SELECT to_regnamespace('rowpost')", prepare=False).fetchone() != (None,)
        yield _rights(connection, schemas, deployed, roles)
    else:
        found = f"the role {owner} owns rowpost here, and what this login creates would have another owner"
        advice = f"only a deployment needs them: deploy with the login {owner}" + (
            f", or add to the url: options=-c%20role%3D{owner}" if member else ""
        )
        yield Check("rights to deploy", "note", found, advice)
    if not roles:
        yield _without_roles(connection, owner, works=member)
    if not sees:
        found = (
            f"the role {owner} cannot see since when sessions of other logins have a transaction open, so that queue "
            "check cannot name them"
        )
        yield Check("statistics", "note", found, f"an administrator runs: GRANT pg_read_all_stats TO {owner};")
    for slot, held, drop in connection.execute(_SLOTS, prepare=False).fetchall():
        found = f"rowpost reads no log any more, and the slot holds back {held or 'no'} of it"
        yield Check(f"replication slot {slot}", "note", found, f"an administrator runs: {drop}")


def _writable(recovery: bool, read_only: bool) -> Check:
    if recovery:
        return Check(
            "writable", "bad", "the server is a standby or a read replica: it stores nothing", READ_ONLY_REMEDY
        )
    if read_only:
        return Check(
            "writable", "bad", "default_transaction_read_only is on: the server stores nothing", READ_ONLY_REMEDY
        )
    return Check("writable", "ok", "the server is a primary")


def _two_phase(prepared: int) -> Check:
    if prepared:
        return Check("two-phase commit", "ok", f"max_prepared_transactions is {prepared}")
    advice = (
        "needed only on servers below `participants`: set it to 64, at least as many as there are workers, and restart "
        "the server"
    )
    return Check(
        "two-phase commit", "note", "max_prepared_transactions is 0: the server prepares no transactions", advice
    )


def _rights(connection: psycopg.Connection, schemas: Sequence[str], deployed: bool, roles: bool) -> Check:
    """Return the rights that apply and queue grant need.

    `schemas` are those of queues and subscriptions; public has the default table of these. apply makes those that are
    missing.
    """
    wanted = sorted({"public", *schemas})
    missing = [row[0] for row in connection.execute(_MISSING, {"schemas": wanted}, prepare=False).fetchall()]
    of_roles = [row[0] for row in connection.execute(_MISSING_ROLES, prepare=False).fetchall()] if roles else []
    if not missing and not of_roles:
        what = "apply and queue grant" if roles else "apply"
        return Check("rights to deploy", "ok", f"this login may run {what}")
    found = "this login lacks rights that apply or queue grant need"
    advice = f"an administrator runs: {' '.join([*missing, *of_roles])}"
    if of_roles:
        advice += " Without the roles: write `roles: none`, and only the login that owns rowpost works"
    return Check("rights to deploy", "note" if deployed else "bad", found, advice)


def _without_roles(connection: psycopg.Connection, owner: str, *, works: bool) -> Check:
    """Return what `roles: none` means for this login. `works` says whether it has the rights of the owner."""
    if connection.execute(HAS_ROLES, prepare=False).fetchone() == (True,):
        found = "the environment has `roles: none`, and rowpost's roles have rights in this database"
        return Check("roles", "note", found, "rowpost plan says whether apply revokes them, or why they stay")
    found = f"with `roles: none` no role is made and none is granted a right: only the login {owner} works"
    if works:
        return Check("roles", "ok", found)
    return Check("roles", "bad", found, f"connect as {owner}, or write `roles: cluster` and run rowpost apply")
