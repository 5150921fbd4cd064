"""The first two steps: what the server and this machine are, and a deployment by a member of db_owner."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from deploy.first_day.ended import Failed, NotPossible
from deploy.first_day.scratch import Place, query

from rowpost.database.connection import Connection
from rowpost.database.requirements import check_drivers
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import Plan, plan
from rowpost.deploy.verify import verify
from rowpost.errors import RowpostError
from rowpost.settings.environment import QueueSettings, SagaSettings, Settings
from rowpost.version import __version__

__all__ = ["CLUSTERED", "HEAP", "LONG", "SAGA", "SECOND", "deploy", "deployed", "facts", "plan_of", "preflight", "wrong_facts"]  # fmt: skip

CLUSTERED, HEAP, SECOND, SAGA = "Clustered", "Heap", "Second", "FirstDaySaga"
#: the longest name that is a queue's key as well: rowpost.[receive_messages:KEY] has more characters than a sysname
LONG = "L" * 107
#: the lowest build: 2016 with Service Pack 1
LOWEST = (13, 0, 4001)
#: each fact has a query of its own, so that a view that a server does not have takes no other fact away
FACTS = {
    "server": "SELECT @@VERSION;",
    "build": "SELECT CAST(SERVERPROPERTY('ProductVersion') AS nvarchar(60));",
    "edition": "SELECT CAST(SERVERPROPERTY('Edition') AS nvarchar(60));",
    "level and update": "SELECT CONCAT(CAST(SERVERPROPERTY('ProductLevel') AS nvarchar(60)), N' ', CAST(SERVERPROPERTY('ProductUpdateLevel') AS nvarchar(60)));",
    "server collation": "SELECT CAST(SERVERPROPERTY('Collation') AS nvarchar(128));",
    "availability groups": "SELECT CAST(SERVERPROPERTY('IsHadrEnabled') AS int);",
    "compatibility level": "SELECT d.compatibility_level FROM sys.databases AS d WHERE d.name = DB_NAME();",
    "RCSI": "SELECT d.is_read_committed_snapshot_on FROM sys.databases AS d WHERE d.name = DB_NAME();",
    "database collation": "SELECT d.collation_name FROM sys.databases AS d WHERE d.name = DB_NAME();",
    "recovery model": "SELECT d.recovery_model_desc FROM sys.databases AS d WHERE d.name = DB_NAME();",
    "delayed durability": "SELECT d.delayed_durability_desc FROM sys.databases AS d WHERE d.name = DB_NAME();",
    "accelerated recovery": "SELECT d.is_accelerated_database_recovery_on FROM sys.databases AS d WHERE d.name = DB_NAME();",
    "optimized locking": "SELECT CAST(DATABASEPROPERTYEX(DB_NAME(), 'IsOptimizedLockingOn') AS int);",
    "trace flags": "DBCC TRACESTATUS(-1) WITH NO_INFOMSGS;",
    "processors": "SELECT i.cpu_count FROM sys.dm_os_sys_info AS i;",
    "memory in MB": "SELECT i.physical_memory_kb / 1024 FROM sys.dm_os_sys_info AS i;",
    "max server memory in MB": "SELECT c.value_in_use FROM sys.configurations AS c WHERE c.name = N'max server memory (MB)';",
    "max degree of parallelism": "SELECT c.value_in_use FROM sys.configurations AS c WHERE c.name = N'max degree of parallelism';",
    "tempdb data files": "SELECT COUNT(*) FROM tempdb.sys.database_files AS f WHERE f.type_desc = N'ROWS';",
    "tempdb collation": "SELECT CAST(DATABASEPROPERTYEX(N'tempdb', 'Collation') AS nvarchar(128));",
    "right to view server state": "SELECT HAS_PERMS_BY_NAME(NULL, NULL, 'VIEW SERVER STATE');",
    "user of the deployment": "SELECT USER_NAME();",
    "member of db_owner": "SELECT IS_ROLEMEMBER('db_owner');",
    "member of sysadmin": "SELECT IS_SRVROLEMEMBER('sysadmin');",
}
#: facts about the login of the deployment, and not about that of ROWPOST_FIRST_DAY_URL
OF_MEMBER = ("user of the deployment", "member of db_owner", "member of sysadmin")
NOT_READABLE = "not readable"


def facts(place: Place) -> dict[str, str]:
    """Read what the server is and how it is set. A fact that cannot be read says so."""
    with place.admin() as admin, place.member() as member:
        found = {name: _fact(member if name in OF_MEMBER else admin, statement) for name, statement in FACTS.items()}
    found["server"] = " ".join(found["server"].split("\n")[0].split())
    return {"rowpost": __version__, **found}


def _fact(database: Connection, statement: str) -> str:
    try:
        rows = query(database, statement)
    except RowpostError:
        return NOT_READABLE
    return ", ".join(str(row[0]).strip() for row in rows if row[0] is not None) or "-"


def preflight(place: Place) -> Sequence[str]:
    """Check version, rights, drivers and the login of the deployment."""
    wrong = ([place.no_member] if place.no_member else []) + wrong_facts(place.facts, babelfish=place.babelfish)
    seen = []
    with place.member() as member, member.translated():
        for check in [*check_drivers("sqlserver"), *member.dialect.checks(member.driver_connection, ["dbo"])]:
            seen.append(f"{check.name}: {check.state}, {check.found}")
            if check.state == "bad":
                wrong.append(f"{check.name}: {check.found}")
    seen += [f"{name}: {value}" for name, value in place.facts.items()]
    if wrong:
        raise Failed("; ".join(wrong), seen)
    return seen


def wrong_facts(found: Mapping[str, str], *, babelfish: bool = False) -> list[str]:
    """Return what about the server, or about the login of the deployment, makes a run useless."""
    build = tuple(int(number) for number in re.findall(r"\d+", found["build"]))[:3]
    wrong = []
    if not babelfish and build < LOWEST and "Azure" not in found["edition"]:
        wrong.append(f"the server has build {found['build']}, and rowpost needs {'.'.join(map(str, LOWEST))} or higher")
    if (
        found["member of db_owner"] != "1"
        or found["member of sysadmin"] == "1"
        or found["user of the deployment"] == "dbo"
    ):
        wrong.append("the login of the deployment is not a plain member of db_owner")
    return wrong


def plan_of(url: str) -> Plan:
    """Return the plan of the run's environment, with all features, for the database of a connection string."""
    queues = (
        QueueSettings(CLUSTERED),
        QueueSettings(SECOND),
        QueueSettings(HEAP, clustered=False),
        QueueSettings("error", delayed=False),
        QueueSettings(LONG, delayed=False),
    )
    return plan(
        Settings(
            engine="sqlserver", url=url, default_schema="dbo", queues=queues, sagas=(SagaSettings(SAGA, "OrderId"),)
        )
    )


def deploy(place: Place) -> Sequence[str]:
    """Deploy all features as a member of db_owner; deploy again, which changes nothing; compare with the plan; check the queues."""
    planned = plan_of(place.url)
    with place.member() as database:
        first = apply(database, planned)
        place.deployed_by = "the administrator" if place.no_member else "a member of db_owner"
        again = apply(database, planned)
        findings = [f"{each.kind}: {each.subject}: {each.detail}" for each in verify(database, planned)]
        queues = [tuple(map(str, row)) for row in database.call("check_queue")]
    seen = [f"first deployment: {len(first.applied)} changes", f"second deployment: {len(again.applied)} changes"]
    if again.applied or findings or queues:
        raise Failed("the deployment does not match its plan", [*seen, *findings, *map(": ".join, queues)])
    seen += ["verify: no finding", "check_queue: no finding"]
    if place.no_member:
        raise Failed(
            f"the administrator deployed it, because no login can be a member of db_owner: {place.no_member}", seen
        )
    return seen


def deployed(place: Place) -> None:
    """Make sure that rowpost is deployed for a step that needs it; by the administrator if the member of db_owner cannot.

    Raises:
        NotPossible: the administrator cannot deploy it either.
    """
    if place.deployed_by:
        return
    refused = ""
    member = [] if place.no_member else [("a member of db_owner", place.member)]
    for who, open_one in (*member, ("the administrator", place.admin)):
        try:
            with open_one() as database:
                apply(database, plan_of(place.url))
        except RowpostError as error:
            refused = str(error)
        else:
            place.deployed_by = who
            return
    raise NotPossible(f"rowpost is not deployed: {refused}")
