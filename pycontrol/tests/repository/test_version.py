"""The command that installs an extra leads back to where rowpost was installed from."""

import json
from importlib import metadata

import pytest

from rowpost.version import install_command


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
        ({"url": "file:///srv/rowpost", "dir_info": {"editable": True}}, "pip install --editable '/srv/rowpost[spark]'"),
        ({"url": "file:///srv/r.whl", "archive_info": {}}, "pip install 'rowpost[spark] @ file:///srv/r.whl'"),
        ({"url": "https://host/r", "vcs_info": {"vcs": "git"}}, "pip install 'rowpost[spark] @ git+https://host/r'"),
    ],
    ids=["from an index", "from a folder", "from a clone", "from a wheel", "from a repository"],
)
def test_an_extra_is_installed_from_where_rowpost_came(monkeypatch, origin, command):
    monkeypatch.setattr(metadata, "distribution", lambda name: Installed(origin))

    assert install_command("spark") == command
