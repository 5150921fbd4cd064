"""The setting `metrics` of the section `supervisor`: the address at which `rowpost run` serves metrics for
Prometheus.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rowpost.errors import SettingsError

__all__ = ["MetricsAddress", "read_metrics_address"]

LOOPBACK, HIGHEST_PORT = "127.0.0.1", 65535
_ADDRESS = re.compile(r"(?:(?P<host>[\w.-]+|\[[0-9A-Fa-f:.%\w]+\]):)?(?P<port>[0-9]{1,5})", re.ASCII)


@dataclass(frozen=True)
class MetricsAddress:
    """Where metrics are served. Port 0 takes a free one."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """The URL of the metrics.

        >>> MetricsAddress("::1", 9464).url
        'http://[::1]:9464/metrics'
        """
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}/metrics"


def read_metrics_address(value: int | str) -> MetricsAddress:
    """Return the address that a port, or host and port, name. Without a host it is reachable from this machine only.

    >>> read_metrics_address(9464), read_metrics_address("[::]:9464")
    (MetricsAddress(host='127.0.0.1', port=9464), MetricsAddress(host='::', port=9464))

    Raises:
        SettingsError: the value is neither.
    """
    found = None if isinstance(value, bool) else _ADDRESS.fullmatch(str(value))
    if found is None or int(found["port"]) > HIGHEST_PORT:
        raise SettingsError(
            f"{value!r} is no address for metrics: write a port, such as 9464, or host and port, such as 0.0.0.0:9464"
        )
    return MetricsAddress((found["host"] or LOOPBACK).strip("[]"), int(found["port"]))
