"""The recorded rows are what was recorded."""

from hashlib import sha256

from tests.support.recorded_rows import FOLDER, recorded


def test_every_recorded_file_is_as_it_was_recorded():
    said = dict(reversed(line.split("  ")) for line in (FOLDER / "SHA256SUMS").read_text().splitlines())

    assert said == {
        path.name: sha256(path.read_bytes()).hexdigest() for path in FOLDER.iterdir() if path.name != "SHA256SUMS"
    }
    assert len(said) > 30


def test_every_recorded_row_has_headers_and_a_body():
    names = {path.stem for path in FOLDER.glob("*.json")} - {"reader", "tables"}

    for name in names:
        row = recorded(name)
        assert row["headers"].startswith("{") and ("body" in row or "body_hex" in row), name
