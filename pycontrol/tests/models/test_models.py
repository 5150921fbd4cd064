"""SPIN searches every state of the models of the protocols, and finds the bugs of their broken variants."""

import re
from pathlib import Path

import pytest

from tests.support.spin import CHECKS, MODELS, REFUTED, missing_program, row, search

needs_spin = pytest.mark.skipif(missing_program() is not None, reason=f"{missing_program()} is not installed")


def name(each):
    return each.name


@needs_spin
@pytest.mark.parametrize("each", CHECKS, ids=name)
def test_a_protocol_holds_in_every_state(each, tmp_path: Path):
    result = search(each, tmp_path)

    print(row(each, result))
    assert result.errors == 0, result.output
    assert result.complete, result.output
    assert result.states > 500, "the search is not that of a small part"
    assert each.live or result.unreached == ()


@needs_spin
@pytest.mark.parametrize("each", REFUTED, ids=name)
def test_a_broken_variant_is_refuted(each, tmp_path: Path):
    result = search(each, tmp_path)

    print(row(each, result))
    assert result.errors == 1, result.output
    assert ("acceptance cycle" in result.output) is each.live, result.output


def test_every_model_and_every_broken_variant_is_checked():
    found = {path.stem: path.read_text("utf-8") for path in MODELS.glob("*.pml") if path.stem != "common"}
    named = {
        model: set(re.findall(r"#(?:ifn?def|if defined|elif defined) (\w+)", text)) - {"TRACE", "COUNT", "RECOVERIES"}
        for model, text in found.items()
    }

    checked = {
        model: {each for one in (*CHECKS, *REFUTED) if one.model == model for each in one.defines if "=" not in each}
        for model in found
    }
    assert checked == named
    assert {one.model for one in CHECKS} == set(found)


def test_the_page_has_a_row_for_every_check():
    page = (MODELS / "README.md").read_text("utf-8")
    rows = {tuple(part.strip() for part in line.split("|")[1:5]) for line in page.splitlines() if line.startswith("| ")}

    missing = [each.name for each in (*CHECKS, *REFUTED) if _head(each) not in rows]
    assert missing == []


def _head(each):
    return (
        each.model,
        ", ".join(f"`{define}`" for define in each.defines),
        "liveness" if each.live else "safety",
        "refuted" if each in REFUTED else "holds",
    )
