"""The example shop, as somebody runs it."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def shop(embedded_url, data_folder):
    """Runs the shop's command in the tests' own data folder."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("ROWPOST_")}
        path = os.pathsep.join([str(ROOT / "pycontrol"), inherited.get("PYTHONPATH", "")])
        return subprocess.run(
            [sys.executable, "-m", "examples.shop", *arguments],
            cwd=ROOT,
            env={**inherited, "ROWPOST_DATA": str(data_folder), "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )

    return run


def test_the_scripted_session_is_right_and_can_be_played_again(shop):
    first, second = shop("--ci"), shop("--ci")

    for ended in (first, second):
        assert (ended.returncode, ended.stderr) == (0, ""), f"{ended.stdout}\n{ended.stderr}"
        assert ended.stdout.endswith("all checks passed\n")
        assert "moved to the error queue" in ended.stdout


def test_a_port_that_another_program_uses_is_named_in_one_sentence(shop):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ended = shop("--port", str(port))

    assert ended.returncode == 1
    assert f"port {port}" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
