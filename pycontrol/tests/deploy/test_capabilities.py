"""What `rowpost version` says an engine supports."""

import pytest

from rowpost.deploy.capabilities import capabilities


@pytest.mark.parametrize(
    ("engine", "version", "lacks"),
    [
        ("postgresql", "PostgreSQL 16.2", {"operators may VACUUM"}),
        ("postgresql", "PostgreSQL 17.0", set()),
        ("sqlserver", "SQL Server 14.0.3456.2", {"optimized for sequential keys (2019)"}),
        ("sqlserver", "SQL Server 16.0.4095.4", set()),
    ],
)
def test_a_feature_depends_on_kind_and_version(engine, version, lacks):
    features = capabilities(engine, version)

    assert {name for name, has in features.items() if not has} == lacks
