"""The two sets of eleven heads of the design documents, and how weights move from one set to another: by name.

The documents disagree on every index, so there are no indices: a layout is named and versioned, a head is asked for
by its name. Labels come from measurements of chains, never from a known transition and never from a decision that a
network made. Heads of transport coefficients need a plasma: in `conductor-11` they are unavailable,
`plasma-2` has them on the plasma's own features.
"""

import tomllib
from dataclasses import replace as with_fields
from importlib.resources import files
from typing import Any

import msgspec
import numpy as np

from metalforge.core import PEAK_HEAD, HeadLayout, find
from metalforge.reservoir import EsnWeights

PEAK = PEAK_HEAD


def _shipped() -> dict[str, HeadLayout]:
    """Return the layouts of `data/layouts.toml`; what a head does not say is that of the one it is like."""
    known: dict[str, dict[str, Any]] = {}
    layouts = {}
    for name, heads in tomllib.loads(files(__package__).joinpath("data/layouts.toml").read_text("utf-8")).items():
        for head in heads:
            said = {key: value for key, value in head.items() if key not in ("like", "on")}
            known[head["name"]] = known.get(head.get("like", ""), {}) | said
        layouts[name] = msgspec.convert({"name": name, "heads": [known[h["name"]] for h in heads]}, HeadLayout)
    return layouts


LAYOUTS = _shipped()
CONDUCTOR_11, GPU_PREP_11 = LAYOUTS["conductor-11"], LAYOUTS["gpu-prep-11"]
"""The heads of design documents 004 (twelve outputs, since the phase has two) and 003."""


def layout(name: str) -> HeadLayout:
    """Return a preset by name."""
    return find("head layout", name, LAYOUTS)


def migrate(weights: EsnWeights, target: HeadLayout) -> EsnWeights:
    """Return a network whose readout has the heads of `target`: rows move by name, new heads are zeros."""
    source, old_w, old_bias = weights.head_readout()
    w_out = np.zeros((target.width, old_w.shape[1]), weights.dtype)
    bias = np.zeros(target.width, weights.dtype)
    heads = []
    for head in target.heads:
        known = head.name in source.names and source[head.name].width == head.width
        if known:
            to, origin = target.span(head.name), source.span(head.name)
            w_out[to], bias[to] = old_w[origin], old_bias[origin]
        # A trained readout keeps the scale and the curve that it was fitted with.
        kept = source[head.name] if known else msgspec.structs.replace(head, trained=False)
        heads.append(msgspec.structs.replace(kept, available=head.available))
    marked = msgspec.structs.replace(target, heads=tuple(heads))
    return with_fields(weights, w_out=w_out, out_bias=bias, heads=marked)
