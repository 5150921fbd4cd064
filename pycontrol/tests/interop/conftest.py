"""Fixtures of the tests beside another endpoint."""

from tests.support.interop.stage import nsb_dll, stage

__all__ = ["nsb_dll", "stage"]
