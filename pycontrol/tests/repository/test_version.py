"""The version is the same wherever it is written, and says which programs a database serves; where an extra comes from."""

import json
import re
import tomllib
from importlib import metadata

import pytest

from rowpost.version import __version__, install_command, is_served_by
from tests.support.documents import ROOT


def test_package_and_changelog_have_the_version_of_the_program():
    package = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    released = re.findall(
        r"^## (\d+\.\d+\.\d+) - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )

    assert package == __version__
    assert __version__ in released


@pytest.mark.parametrize(
    ("deployed", "program", "served"),
    [
        ("0.2.0", "0.2.0", True),
        ("0.2.7", "0.2.0", True),
        ("0.3.1", "0.2.0", True),
        ("0.4.0", "0.2.0", False),
        ("0.10.0", "0.9.0", True),
        ("1.0.0", "0.2.0", False),
        ("of my own", "0.2.0", False),
    ],
)
def test_a_release_serves_the_programs_of_the_one_before(deployed, program, served):
    assert is_served_by(deployed, program) is served


class Installed:
    def __init__(self, origin: dict | None) -> None:
        self.origin = origin

    def read_text(self, name: str) -> str | None:
        return json.dumps(self.origin) if name == "direct_url.json" and self.origin else None


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'rowpost[spark]'"),
        ({"url": "file:///home/a%20b/rowpost", "dir_info": {}}, "pip install '/home/a b/rowpost[spark]'"),
        (
            {"url": "file:///srv/rowpost", "dir_info": {"editable": True}},
            "pip install --editable '/srv/rowpost[spark]'",
        ),
        ({"url": "file:///srv/r.whl", "archive_info": {}}, "pip install 'rowpost[spark] @ file:///srv/r.whl'"),
        ({"url": "https://host/r", "vcs_info": {"vcs": "git"}}, "pip install 'rowpost[spark] @ git+https://host/r'"),
    ],
    ids=["from an index", "from a folder", "from a clone", "from a wheel", "from a repository"],
)
def test_an_extra_is_installed_from_where_rowpost_came(monkeypatch, origin, command):
    monkeypatch.setattr(metadata, "distribution", lambda name: Installed(origin))

    assert install_command("spark") == command
