"""What a killed supervisor leaves in the temporary folder."""

import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from tests.support.workers import eventually, shop, supervisor_process

__all__ = ["shop"]

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no fork server")


@pytest.fixture
def folder(monkeypatch):
    """An empty temporary folder with a short name, as names of sockets are limited."""
    made = Path(tempfile.mkdtemp(prefix="t-"))
    monkeypatch.setenv("TMPDIR", str(made))
    yield made
    shutil.rmtree(made)


def test_the_next_supervisor_removes_the_folders_of_killed_ones_and_no_others(shop, folder):
    (folder / "pymp-of-another-program").mkdir()
    (folder / "rowpost-mp-file").touch()
    with supervisor_process(shop, "note") as running:
        eventually(lambda: list(folder.glob("rowpost-mp-*/pymp-*/*")), "a fork server runs")
        (live,) = folder.glob("rowpost-mp-*/")
        with supervisor_process(shop, "note") as killed:
            eventually(lambda: len(list(folder.glob("rowpost-mp-*/pymp-*/*"))) == 2, "another one runs")
            killed.kill()
            killed.wait()
        (left,) = set(folder.glob("rowpost-mp-*/")) - {live}
        with supervisor_process(shop, "note") as third:
            eventually(lambda: not left.exists(), "the next one has removed what was left")
            eventually(lambda: len(list(folder.glob("rowpost-mp-*/pymp-*/*"))) == 2, "the next one runs")
            stays = live.exists()
            for process in (running, third):
                process.send_signal(signal.SIGTERM)
                process.wait()

    assert stays
    assert {each.name for each in folder.iterdir()} == {"pymp-of-another-program", "rowpost-mp-file"}
