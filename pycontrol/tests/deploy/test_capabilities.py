"""What `rowpost version` says an engine supports."""

import pytest

from rowpost.deploy.capabilities import capabilities


@pytest.mark.parametrize(
    ("engine", "version", "babelfish", "lacks"),
    [
        ("postgresql", "PostgreSQL 16.2", False, {"operators may VACUUM"}),
        ("postgresql", "PostgreSQL 17.0", False, set()),
        ("sqlserver", "SQL Server 14.0.3456.2", False, {"optimized for sequential keys (2019)"}),
        ("sqlserver", "SQL Server 16.0.4095.4", False, set()),
    ],
)
def test_a_feature_depends_on_kind_and_version(engine, version, babelfish, lacks):
    features = capabilities(engine, version, babelfish=babelfish)

    assert {name for name, has in features.items() if not has} == lacks


def test_babelfish_lacks_all_of_it():
    assert not any(capabilities("sqlserver", "SQL Server 12.0.2000.8", babelfish=True).values())
