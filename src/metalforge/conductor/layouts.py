"""The two sets of eleven heads of the design documents, and how weights move from one set to another: by name.

The documents disagree on every index, so there are no indices: a layout is named and versioned, a head is asked for
by its name. Labels come from measurements of chains, never from a known transition and never from a decision that a
network made. Heads of transport coefficients need a plasma: on plaquettes they are marked unavailable, `plasma-2` has
them on the plasma's own features.
"""

import tomllib
from dataclasses import replace as with_fields
from importlib.resources import files
from typing import Any

import msgspec
import numpy as np

from metalforge.core.errors import SpecError, find
from metalforge.core.schema import PEAK_HEAD, HeadLayout, HeadSpec
from metalforge.reservoir.weights import EsnWeights

LAYOUTS: dict[str, HeadLayout] = {}
LABEL_OF: dict[str, str] = {}
"""The head whose label another shares."""
PEAK = PEAK_HEAD
TRAJECTORIES: set[str] = set()
"""Heads that are trained and tested on trajectories; all others are on sweeps."""


def _take_shipped() -> None:
    """Take up the layouts of `data/layouts.toml`; what a head does not say is that of the one it is like."""
    known: dict[str, dict[str, Any]] = {}
    for name, heads in tomllib.loads(files(__package__).joinpath("data/layouts.toml").read_text("utf-8")).items():
        for head in heads:
            like = head.pop("like", "")
            if head.pop("on", "sweeps") == "trajectories":
                TRAJECTORIES.add(head["name"])
            if like and "label" not in head:
                LABEL_OF[head["name"]] = like
            known[head["name"]] = known.get(like, {}) | head
        LAYOUTS[name] = msgspec.convert({"name": name, "heads": [known[h["name"]] for h in heads]}, HeadLayout)


_take_shipped()
CONDUCTOR_11, GPU_PREP_11 = LAYOUTS["conductor-11"], LAYOUTS["gpu-prep-11"]
"""The heads of design documents 004 (twelve outputs, since the phase has two) and 003."""


PLASMA_2 = LAYOUTS["plasma-2"]
"""Transport coefficients from the beginning of a plasma's run."""
PLASMA_FEATURES = "plasma-features-1"


def fed_by(layout: HeadLayout, features: str) -> HeadLayout:
    """Return a layout as it is on inputs of a schema: heads that these inputs cannot feed are unavailable.

    On plasma the transport heads are those of `plasma-2`, and no other is fed; on a lattice they are not.
    """
    if features != PLASMA_FEATURES:
        heads = [h if needs(h.name) != "plasma" else msgspec.structs.replace(h, available=False) for h in layout.heads]
    else:
        heads = [
            PLASMA_2[h.name] if needs(h.name) == "plasma" else msgspec.structs.replace(h, available=False)
            for h in layout.heads
        ]
    return msgspec.structs.replace(layout, heads=tuple(heads))


def needs(head: str) -> str:
    """Return what a head needs to see: a lattice or a plasma."""
    return "plasma" if head in PLASMA_2.names else "lattice"


def label_of(head: str) -> str:
    """Return the name of a head's label: its own, or that of the head it shares one with."""
    return LABEL_OF.get(head, head)


def on_trajectories(head: HeadSpec, name: str) -> HeadSpec:
    """Return a head of another name that is trained and tested on trajectories, with the label of the one given."""
    LABEL_OF[name] = label_of(head.name)
    TRAJECTORIES.add(name)
    return msgspec.structs.replace(head, name=name)


def layout(name: str) -> HeadLayout:
    """Return a preset by name."""
    return find("head layout", name, LAYOUTS)


def migrate(weights: EsnWeights, target: HeadLayout, *, names: tuple[str, ...] = ()) -> EsnWeights:
    """Return a network whose readout has the heads of `target`: rows move by name, new heads are zeros and untrained.

    `names` are the heads of weights that carry no layout, such as hotSpring's files of nine: one output each.
    """
    if weights.w_out is None or weights.out_bias is None:
        raise SpecError("only a network with a readout can be migrated\nhint: fit one, or build a ConductorProgram")
    source = weights.heads
    if source is None:
        if len(names) != weights.outputs:
            raise SpecError(
                f"these weights carry no layout: name their {weights.outputs} heads. Got {len(names)} names"
                "\nhint: names=GPU_PREP_11.names[:9] for a file of nine heads"
            )
        source = HeadLayout(name="unnamed", heads=tuple(HeadSpec(name=name) for name in names))
    w_out = np.zeros((target.width, weights.w_out.shape[1]), weights.dtype)
    bias = np.zeros(target.width, weights.dtype)
    heads = []
    for head in target.heads:
        known = head.name in source.names and source[head.name].width == head.width
        if known:
            to, origin = target.span(head.name), source.span(head.name)
            w_out[to], bias[to] = weights.w_out[origin], weights.out_bias[origin]
        # A trained readout keeps the scale and the curve that it was fitted with.
        kept = source[head.name] if known and weights.heads is not None else head
        trained = known and source[head.name].trained
        heads.append(msgspec.structs.replace(kept, trained=trained, available=head.available))
    marked = msgspec.structs.replace(target, heads=tuple(heads))
    return with_fields(weights, w_out=w_out, out_bias=bias, heads=marked)
