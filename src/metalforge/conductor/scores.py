"""What is measured of heads, as records: scores on held-out chains, and what an early stop of warm-up costs."""

import msgspec

from .clusters import CouplingInterval

__all__ = ["Evaluation", "HeadScore", "StopRule", "StopStudy"]


class HeadScore(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One head on one route: its metric with a 95 % interval, and what it adds to the strongest baseline."""

    name: str
    metric: str
    value: float
    low: float
    high: float
    baseline: float
    baseline_name: str
    skill: float
    trusted: bool
    route: str


class StopRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule: share of warm-up trajectories saved, share of chains stopped before their label, and bounds of bias.

    The bounds are the largest over couplings, in errors of a standard measurement; `worst` names where. `one_start` is
    the largest bias of hot or of cold chains alone, without a margin. `left_plaquette` and `left_polyakov` are what is
    left of the start, signed by it and averaged over couplings, with an interval that draws couplings again; records of
    earlier studies have none.
    """

    rule: str
    saved: float
    premature: float
    bias_plaquette: float
    bias_polyakov: float
    worst: str
    one_start: float
    unbiased: bool
    left_plaquette: CouplingInterval | None = None
    left_polyakov: CouplingInterval | None = None


class StopStudy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was run, and every rule."""

    betas: tuple[float, ...]
    dims: tuple[int, int, int, int]
    chains: int
    """At each coupling, half of them from hot."""
    fixed: int
    measured: int
    sure: float
    in_a_row: int
    factor: float
    """The head's rule: this many times the trajectories until it was sure; chosen on training chains."""
    rules: tuple[StopRule, ...]


class Evaluation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that `conductor evaluate --json` prints."""

    heads: tuple[HeadScore, ...]
    thermalisation_stop: StopStudy
