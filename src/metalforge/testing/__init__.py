"""Conformance kits: what plug-in authors run over their own substrates to know that they keep the contract."""

from .substrate import check_substrate

__all__ = ["check_substrate"]
