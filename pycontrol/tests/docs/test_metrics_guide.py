"""The guide of metrics lists what a run like `make run` exports: names, kinds, labels and texts. Values differ from run to run."""

from pathlib import Path

from tests.support.metered import BLOCK, GUIDE, listed, metrics_of_a_run


def without_values(table: str) -> list[str]:
    return [line.rpartition(" | ")[0] for line in table.strip().splitlines()]


def test_the_guide_lists_the_metrics_of_a_run(data_folder: Path, embedded_url: str):
    made = listed(metrics_of_a_run(data_folder, orders=100))
    shown = BLOCK.search(GUIDE.read_text(encoding="utf-8"))

    assert shown, "the guide has no block for the table"
    assert without_values(made) == without_values(shown[0].partition("\n")[2].rpartition("\n")[0]), (
        "run: python -m tests.support.metered, in pycontrol/"
    )
    assert "no sample" not in shown[0]
