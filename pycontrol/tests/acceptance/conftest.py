"""Fixtures for tests of workers."""

from tests.workers import shop

__all__ = ["shop"]
