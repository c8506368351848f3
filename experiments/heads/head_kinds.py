"""Which label trains a head, and on which chains, as `conductor/data/layouts.toml` says."""

import tomllib
from importlib.resources import files

_TABLES = tomllib.loads(files("metalforge.conductor").joinpath("data/layouts.toml").read_text("utf-8"))
_HEADS = [head for heads in _TABLES.values() for head in heads]
LABEL_OF: dict[str, str] = {head["name"]: head["like"] for head in _HEADS if "like" in head and "label" not in head}
"""The head whose label another shares."""
TRAJECTORIES = {head["name"] for head in _HEADS if head.get("on") == "trajectories"}
"""Heads that are trained and tested on trajectories; all others are on sweeps."""


def label_of(head: str) -> str:
    """Return the name of a head's label: its own, or that of the head it shares one with."""
    return LABEL_OF.get(head, head)
