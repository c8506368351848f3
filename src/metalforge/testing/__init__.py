"""Conformance kits for plug-in authors: what one runs over own code to know that it holds."""

from .substrate import check_substrate

__all__ = ["check_substrate"]
