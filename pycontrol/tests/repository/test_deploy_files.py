"""The systemd unit and the runbook agree with the exit codes of the program."""

import re
from pathlib import Path

from rowpost.cli.exits import ExitCode

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
#: after these, another start may end differently; 130 is Ctrl-C, and 0 and 1 are no failures of a service
RESTARTED = {ExitCode.UNAVAILABLE}
NO_FAILURE = {ExitCode.OK, ExitCode.FINDING, ExitCode.INTERRUPTED}


def test_systemd_restarts_only_what_a_restart_can_mend():
    unit = (DEPLOY / "rowpost@.service").read_text(encoding="utf-8")

    (prevented,) = re.findall(r"^RestartPreventExitStatus=(.*)$", unit, re.MULTILINE)

    assert {int(code) for code in prevented.split()} == set(ExitCode) - RESTARTED - NO_FAILURE


def test_the_runbook_explains_every_code_with_which_a_service_ends():
    runbook = (
        (DEPLOY / "runbook.md")
        .read_text(encoding="utf-8")
        .partition("## Exit code of the service")[2]
        .partition("\n## ")[0]
    )

    explained = {int(code) for code in re.findall(r"^\| (\d+) \|", runbook, re.MULTILINE)}

    assert explained == set(ExitCode) - NO_FAILURE - {ExitCode.USAGE}
