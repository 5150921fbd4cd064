"""The workflows call what there is, test a pull request once as a whole, and release what CHANGELOG.md describes."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from deploy.release.notes import NotReady, notes

from tests.support.documents import ROOT

FOLDER = ROOT / ".github" / "workflows"
WORKFLOWS = {
    path.stem: yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    for path in sorted(FOLDER.glob("*.yml"))
}
WHOLE = re.compile(r"(make test|make test/all|\.ci/run)\s*$")


def commands(name: str) -> list[str]:
    """What a workflow runs, job by job."""
    return [step["run"] for job in WORKFLOWS[name]["jobs"].values() for step in job["steps"] if "run" in step]


def test_each_target_that_a_workflow_makes_exists():
    targets = set(re.findall(r"^([\w/.-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    made = {
        target
        for name in WORKFLOWS
        for text in commands(name)
        for target in re.findall(r"(?:^|&& )make ([\w/-]+)", text, re.MULTILINE)
    }

    assert {"test", "test/dist", "check", "run", "dist", "coverage"} <= made
    assert made <= targets


def test_a_pull_request_runs_the_whole_suite_once():
    whole = [
        (name, text)
        for name, workflow in WORKFLOWS.items()
        if "pull_request" in workflow["on"]
        for text in commands(name)
        if WHOLE.search(text)
    ]

    assert whole == [("checks", ".ci/run")]
    assert (
        WORKFLOWS["checks"]["on"]["pull_request"]["paths-ignore"] == WORKFLOWS["pages"]["on"]["pull_request"]["paths"]
    )


def test_each_version_of_python_from_the_oldest_on_is_checked():
    oldest = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "requires-python"
    ].removeprefix(">=")
    versions = WORKFLOWS["checks"]["jobs"]["python"]["strategy"]["matrix"]["version"]

    assert versions == [f"3.{minor}" for minor in range(int(oldest.partition(".")[2]), 15)]


def test_the_notes_of_a_release_are_its_section_of_the_changes(tmp_path):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    changes = tmp_path / "CHANGELOG.md"

    changes.write_text(
        f"# Changes\n\n## Unreleased\n\n- next\n\n## {version} - 2026-11-22\n\n### Added\n\n- this\n\n## 0.1.0 - 2026-01-01\n\n- old\n"
    )
    assert notes(f"v{version}", tmp_path) == "### Added\n\n- this\n"
    with pytest.raises(NotReady, match=f"which is {version}"):
        notes("v9.9.9", tmp_path)
    for text, missing in (
        (f"## {version}\n\n- this\n", "no section with a date"),
        (f"## {version} - 2026-11-22\n\n## 0.1.0\n", "is empty"),
    ):
        changes.write_text(text)
        with pytest.raises(NotReady, match=missing):
            notes(f"v{version}", tmp_path)


def test_a_release_without_notes_fails_with_a_sentence():
    ran = subprocess.run(
        [sys.executable, ROOT / "deploy/release/notes.py", "v0.0.0"], capture_output=True, text=True, check=False
    )

    assert (ran.returncode, ran.stdout, "Traceback" in ran.stderr) == (1, "", False)
    assert "v0.0.0" in ran.stderr


def test_the_hooks_of_pre_commit_run_what_is_installed():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0]["hooks"]

    programs = {hook["entry"].split()[0].removeprefix(".venv/bin/") for hook in hooks}
    assert programs == {"ruff", "mypy", "sqlfluff"}
    assert all(Path(sys.executable).with_name(program).exists() for program in programs)
