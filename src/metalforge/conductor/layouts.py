"""The two sets of eleven heads of the design documents, and how weights move from one set to another: by name.

The documents disagree on every index, so there are no indices: a layout is named and versioned, a head is asked for
by its name. Labels come from measurements of chains, never from a known transition and never from a decision that a
network made. Heads of transport coefficients need a plasma that nobody feeds yet: they are marked unavailable.
"""

from dataclasses import replace as with_fields

import msgspec
import numpy as np

from metalforge.core.errors import SpecError, UnknownNameError
from metalforge.core.schema import HeadLayout, HeadSpec
from metalforge.reservoir.weights import EsnWeights


def _chance(name: str, label: str, baseline: str) -> HeadSpec:
    """A probability that something is so."""
    return HeadSpec(name=name, activation="sigmoid", loss="log", label=label, baseline=baseline)


def _amount(name: str, label: str, baseline: str, *, unit: str = "", scale: float = 1.0) -> HeadSpec:
    """A number that is not negative."""
    return HeadSpec(name=name, activation="relu", unit=unit, scale=scale, label=label, baseline=baseline)


def _like(head: HeadSpec, name: str, **more: object) -> HeadSpec:
    return msgspec.structs.replace(head, name=name, **more)


_THERMALISED = _chance(
    "thermalization", "the chain is inside the equilibrium band of an independent long run", "MSER on the plaquette"
)
_PHASE = HeadSpec(
    name="phase",
    width=2,
    activation="softmax",
    loss="log",
    label="the Z3-projected Polyakov loop of the equilibrated chain against the midpoint of two reference couplings",
    baseline="coupling alone",
)
_ANOMALY = _chance("anomaly", "a fault was injected into the run", "the largest standardised deviation of the window")
_PRIORITY = _amount(
    "beta_priority",
    "the susceptibility at this coupling over the largest of the scan",
    "mean of the training couplings",
)
_CG = _amount(
    "cg_estimate",
    "iterations of the next solve",
    "iterations of the last solve",
    unit="iterations a solve",
    scale=500.0,
)
_REJECTION = _chance(
    "rejection", "the Metropolis test rejected the trajectory; seen at a quarter of its steps", "running rejection rate"
)
_QUALITY = _amount(
    "quality",
    "effective sample size of the chain over its cost",
    "mean of the training chains",
    unit="effective samples a second",
)
_SCHEDULE = _amount(
    "schedule",
    "trajectories that one independent measurement takes (twice the autocorrelation time)",
    "mean of the training chains",
    unit="trajectories",
    scale=100.0,
)
_ORDER = _amount("deconfinement", "<|L|> of the equilibrated chain", "coupling alone")
_DIFFUSION = HeadSpec(name="transport_D", unit="a^2 omega_p", available=False, label="D* of a Yukawa plasma")
_VISCOSITY = HeadSpec(name="transport_eta", unit="m n a^2 omega_p", available=False, label="eta* of a Yukawa plasma")

_WATCHING = (_THERMALISED, _PHASE, _ANOMALY, _PRIORITY, _CG, _REJECTION, _QUALITY, _SCHEDULE, _ORDER)
CONDUCTOR_11 = HeadLayout(name="conductor-11", heads=(*_WATCHING, _DIFFUSION, _VISCOSITY))
"""The heads of design document 004; twelve outputs, since the phase has two."""


GPU_PREP_11 = HeadLayout(
    name="gpu-prep-11",
    heads=(
        _PRIORITY,
        _amount(
            "param_suggest",
            "the step size of the most effective samples an integration step, of those run at this coupling",
            "volume rule, step ~ V^(-1/4)",
            unit="step size",
            scale=0.1,
        ),
        _like(_THERMALISED, "therm_detect"),
        _like(_REJECTION, "reject_predict"),
        _like(_PHASE, "phase_classify", width=1, activation="sigmoid"),
        _CG,
        _like(_QUALITY, "quality_score"),
        _like(_ANOMALY, "anomaly_detect"),
        _like(_PRIORITY, "next_run", label="the error of the susceptibility at this coupling over the largest"),
        _amount(
            "quenched_length",
            "first trajectory from which the quenched chain stays in its equilibrium band",
            "mean of the training chains",
            unit="trajectories",
            scale=200.0,
        ),
        _like(_THERMALISED, "quenched_therm"),
    ),
)
"""The heads of design document 003."""

LAYOUTS = {made.name: made for made in (CONDUCTOR_11, GPU_PREP_11)}


def layout(name: str) -> HeadLayout:
    """Return a preset by name."""
    if name not in LAYOUTS:
        raise UnknownNameError("head layout", name, LAYOUTS)
    return LAYOUTS[name]


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
        heads.append(msgspec.structs.replace(head, trained=known and source[head.name].trained))
    marked = msgspec.structs.replace(target, heads=tuple(heads))
    return with_fields(weights, w_out=w_out, out_bias=bias, heads=marked)
