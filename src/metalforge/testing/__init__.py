"""Conformance tests for authors of plug-ins."""

from .substrate import check_substrate

__all__ = ["check_substrate"]
