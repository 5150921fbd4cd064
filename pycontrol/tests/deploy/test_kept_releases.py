"""The releases that are kept: complete, and still served by this one where it promises to."""

import re
import zipfile

import pytest

from rowpost.database.contract import Parameter, Procedure, load_contract, read_contract
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
from rowpost.deploy.release import open_release
from rowpost.deploy.verify import verify
from rowpost.version import __version__, is_served_by
from tests.support.documents import ROOT
from tests.support.releases import KeptRelease, kept_releases

KEPT = kept_releases()
RELEASED = re.compile(r"^## (\d+\.\d+\.\d+) - \d{4}-\d\d-\d\d$", re.MULTILINE)


def test_every_release_of_the_changelog_is_kept():
    released = RELEASED.findall((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))

    assert released == [each.version for each in reversed(KEPT)]


@pytest.mark.parametrize("kept", KEPT, ids=lambda kept: kept.version)
def test_archive_and_wheel_of_a_kept_release_deploy_the_same_scripts(kept: KeptRelease):
    with zipfile.ZipFile(kept.archive) as archive, zipfile.ZipFile(kept.wheel) as wheel:
        archived = {name: archive.read(name) for name in archive.namelist()}
        installed = {
            name.removeprefix("rowpost/sql/"): wheel.read(name)
            for name in wheel.namelist()
            if name.startswith("rowpost/sql/")
        }
        metadata = wheel.read(f"rowpost-{kept.version}.dist-info/METADATA").decode()

    assert archived.pop("VERSION").decode().strip() == kept.version
    assert f"\nVersion: {kept.version}\n" in metadata
    assert archived == {
        name: text
        for name, text in installed.items()
        if name.endswith((".sql", ".yml")) and not name.startswith("tests/")
    }


def signature(procedure: Procedure) -> list[tuple]:
    def form(each: Parameter) -> tuple:
        return (each.name, each.type, each.optional, each.engines)

    return [list(map(form, procedure.parameters)), list(map(form, procedure.result))]


@pytest.mark.parametrize(
    "kept", [each for each in KEPT if is_served_by(__version__, each.version)], ids=lambda kept: kept.version
)
def test_every_procedure_of_a_release_that_is_served_has_its_signature_still(kept: KeptRelease):
    ours = {(each.scope, each.name): signature(each) for each in load_contract().procedures}

    with open_release(kept.archive) as release:
        theirs = {(each.scope, each.name): signature(each) for each in read_contract(release.folder).procedures}

    assert {key: ours.get(key) for key in theirs} == theirs


@pytest.mark.parametrize("kept", KEPT, ids=lambda kept: kept.version)
def test_a_kept_release_is_deployed_from_its_archive(shop, database, kept: KeptRelease):
    with open_release(kept.archive) as release:
        planned = plan(shop.settings, release.folder)
        apply(database, planned)

        assert verify(database, planned) == []
