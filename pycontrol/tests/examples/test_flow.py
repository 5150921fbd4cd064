"""The example flow, as somebody runs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[3]


@pytest.mark.timeout(400)
def test_the_story_is_right_on_a_small_scale(embedded_url, data_folder, tmp_path):
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("ROWPOST_")}
    path = os.pathsep.join([str(ROOT / "pycontrol"), inherited.get("PYTHONPATH", "")])
    ended = subprocess.run(
        [sys.executable, "-m", "examples.flow", "--orders", "7", "--out", str(tmp_path / "out")],
        cwd=ROOT,
        env={**inherited, "ROWPOST_DATA": str(data_folder), "PYTHONPATH": path, "SHOP_INSTANCE": "flow1"},
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )

    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    assert ended.stdout.endswith("all checks passed\n")
    assert "1 failed payments are replayed to Shop.Billing; a second run sends none" in ended.stdout
    assert "└─ ShipOrder  Shop.Shipping → Shop.Shipping" in ended.stdout and "sequenceDiagram" in ended.stdout
