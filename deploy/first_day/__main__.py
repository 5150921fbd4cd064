"""The command line of the first day: `python -m deploy.first_day --help`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(
    0, str(Path(__file__).resolve().parents[2] / "pycontrol")
)  # also without a PYTHONPATH: the tests' support

from deploy.first_day import locks, plans, probes, programs, server
from deploy.first_day.report import write
from deploy.first_day.scratch import NAME, Refused, scratch
from deploy.first_day.verdicts import Step, Verdict, exit_code, judge
from deploy.tsqlt.run import CHANGES

__all__ = ["STEPS", "main", "runs"]

SERVER = "ROWPOST_FIRST_DAY_URL"
NO_MEMBER = "has no members of db_owner"
LONG_NAME = "refuses more than 128 characters in HAS_PERMS_BY_NAME"
STEPS = (
    Step("preflight", "version, rights and drivers", server.preflight, NO_MEMBER),
    Step("deploy", "by a member of db_owner, verified", server.deploy, NO_MEMBER),
    Step("conformance", "the tests of all procedures", programs.conformance),
    Step("tsqlt", "the tSQLt classes", programs.tsqlt),
    Step("long-name", "an endpoint with a long queue name", probes.long_name, LONG_NAME),
    Step("owner", "a database whose owner has no login", probes.owner),
    Step("level", "a database at compatibility level 130", probes.level),
    Step("concurrency", "races, locks and killed processes", programs.concurrency, both=True),
    Step("registration", "a publish beside an open registration", probes.registration, both=True),
    Step("readpast", "a held row is skipped", locks.readpast, "accepts READPAST and ignores it", both=True),
    Step(
        "deadlocks",
        "workers and purgers on one queue",
        locks.deadlocks,
        "accepts READPAST and ignores it: receivers wait for one another",
        both=True,
    ),
    Step("escalation", "no lock of a whole table", locks.escalation, both=True),
    Step("plans", "a seek, no sort, one plan per procedure", plans.plans),
    Step("calls", "one client: messages per second", programs.calls),
    Step("scaling", "worker processes: messages per second", programs.scaling),
)
NAMES = tuple(step.name for step in STEPS)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m deploy.first_day",
        description="Run rowpost's checks on a SQL Server, in a database of their own, and write one report.",
        epilog=f"{SERVER} is an ODBC connection string whose login may create databases and logins. Exit codes: 0 no step failed, 1 a step failed, "
        "2 the run could not start.",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=NAMES,
        metavar="STEP",
        default=list(NAMES),
        help=f"run these steps: {', '.join(NAMES)}",
    )
    parser.add_argument("--skip", nargs="+", choices=NAMES, metavar="STEP", default=[], help="run all steps but these")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a short run that shows that the steps work: few tests, a tenth of the messages",
    )
    parser.add_argument("--database", default=NAME, help="name of the scratch database and of its login (%(default)s)")
    parser.add_argument(
        "--rcsi",
        choices=("on", "off", "both"),
        default="both",
        help="READ_COMMITTED_SNAPSHOT for the steps whose result depends on it: about locks and races (%(default)s)",
    )
    parser.add_argument("--keep", action="store_true", help="keep the scratch database and its login")
    parser.add_argument(
        "--tsqlt",
        metavar="FILE",
        help="install the real tSQLt from this file (needs CLR and a sysadmin); a shim otherwise",
    )
    parser.add_argument("--sha256", metavar="SUM", help="with --tsqlt: the checksum that the file must have")
    parser.add_argument(
        "--install-framework",
        action="store_true",
        help="with --tsqlt: change the server for it, and take that back at the end; without it, the changes are printed",
    )
    parser.add_argument(
        "--output", type=Path, metavar="FOLDER", help="a new folder for the report (first-day-DATE-TIME)"
    )
    return parser


def runs(steps: Sequence[Step], rcsi: str, *, babelfish: bool) -> list[tuple[Step, str]]:
    """Return each step with the READ_COMMITTED_SNAPSHOT under which it runs; "": as the server has it. Babelfish has no such setting."""
    settings = ("off", "on") if rcsi == "both" else (rcsi,)
    return [(step, each) for step in steps for each in (settings if step.both and not babelfish else ("",))]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen steps. Return 0 if none failed, 1 if one failed, 2 if the run could not start."""
    parser = _parser()
    options = parser.parse_args(arguments)
    url = os.environ.get(SERVER)
    if not url:
        parser.error(f"set {SERVER} to an ODBC connection string, with a login that may create databases and logins")
    if bool(options.tsqlt) != bool(options.sha256):
        parser.error("--tsqlt and --sha256 belong together")
    if options.tsqlt and not options.install_framework:
        print(CHANGES, end="", file=sys.stderr)
        return 2
    at = datetime.now(UTC)
    folder = options.output or Path(f"first-day-{at:%Y%m%d-%H%M%S}")
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        parser.error(f"the folder of the report cannot be created: {error}")
    steps = [step for step in STEPS if step.name in options.only and step.name not in options.skip]
    tsqlt = ["--tsqlt", options.tsqlt, "--sha256", options.sha256, "--install-framework"] if options.tsqlt else []
    verdicts: list[Verdict] = []
    facts: dict[str, str] = {}
    try:
        with scratch(
            url,
            folder,
            options.database,
            keep=options.keep,
            quick=options.quick,
            tsqlt=tsqlt,
        ) as place:
            facts = place.facts = {name: place.secrets.hide(value) for name, value in server.facts(place).items()}
            for step, rcsi in runs(steps, options.rcsi, babelfish=place.babelfish):
                print(f"{step.name}: {step.title} ...", flush=True)
                verdicts.append(judge(step, place, rcsi=rcsi))
                print(f"{verdicts[-1].label}: {verdicts[-1].state} {verdicts[-1].reason}".rstrip(), flush=True)
                facts["deployed by"] = place.deployed_by
                write(folder, facts, verdicts, STEPS, at)
    except Refused as error:
        folder.rmdir()
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Interrupted. The scratch database is dropped.", file=sys.stderr)
        return 130
    print(f"The report is {folder / 'report.md'}. Send back the folder {folder}.")
    return exit_code(verdicts)


if __name__ == "__main__":
    sys.exit(main())
