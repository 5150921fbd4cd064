"""The guide on sagas: its saga and its test run as they are written there."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_guides_saga_and_its_test_run(embedded_url, data_folder, tmp_path):
    saga, trial, *_ = BLOCK.findall((ROOT / "docs" / "guides" / "sagas.md").read_text(encoding="utf-8"))
    (tmp_path / "guide.py").write_text(saga + trial, encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "guide.py"],
        cwd=tmp_path,
        env={**os.environ, "ROWPOST_DATA": str(data_folder), "PYTHONPATH": str(ROOT / "pycontrol")},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
