"""Scrapes of the metrics of a supervisor, parsed as Prometheus parses them, and answers of its health."""

import json
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

__all__ = ["Scrape", "health", "scrape"]

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


class Scrape:
    """The samples of one scrape."""

    def __init__(self, families) -> None:
        self.families = {family.name: family for family in families}
        self.samples = [sample for family in self.families.values() for sample in family.samples]

    @property
    def names(self) -> set[str]:
        """The names of the samples, as queries use them."""
        return {sample.name for sample in self.samples}

    def labels(self, name: str) -> set[str]:
        """The names of the labels of a sample."""
        return {label for sample in self.samples if sample.name == name for label in sample.labels}

    def value(self, name: str, **labels: str) -> float | None:
        """The value of the one sample that has these labels; None if there is none."""
        found = [each.value for each in self.samples if each.name == name and labels.items() <= each.labels.items()]
        assert len(found) <= 1, f"{name} {labels}: {found}"
        return found[0] if found else None


def _get(url: str, **headers: str) -> tuple[int, str, str]:
    try:
        with urlopen(Request(url, headers=headers), timeout=30) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def scrape(url: str, *, openmetrics: bool = False) -> Scrape:
    """Read the metrics."""
    status, kind, text = _get(url, **({"Accept": OPENMETRICS} if openmetrics else {}))
    assert (status, kind.partition(";")[0]) == (200, "application/openmetrics-text" if openmetrics else "text/plain"), (
        text
    )
    return Scrape((parse_openmetrics if openmetrics else parse_text)(text))


def health(url: str, what: str) -> tuple[int, list[str]]:
    """Ask `/health/live` or `/health/ready`; return the status and the problems."""
    status, _, text = _get(f"{url.rpartition('/')[0]}/health/{what}")
    return status, json.loads(text)["problems"]
