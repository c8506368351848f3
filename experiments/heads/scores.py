"""Records of the studies of heads, of which a package ships the scores, and intervals over couplings."""

from collections.abc import Iterable, Sequence
from math import ceil, sqrt
from typing import Any, Literal

import msgspec
import numpy as np

from metalforge.conductor.features import ChainContext
from metalforge.conductor.scores import CouplingInterval, HeadScore, TestedKind, interval_ends
from metalforge.conductor.shipped import FOLDER
from metalforge.core.errors import SpecError

RESAMPLES = 20_000
SEEN = 3.29
"""Errors that a bias must be away from zero: 1.645 to be called one (5 %, one side) and 1.645 more to be seen in 95 %
of all studies."""


def over_couplings(values: Sequence[float]) -> CouplingInterval:
    """Return the mean of one value per coupling, with the interval of drawing couplings again."""
    n = len(values)
    if n < 2:
        raise SpecError(f"an interval over couplings needs at least two. Got {n}")
    found = np.asarray(values, np.float64)
    drawn = found[np.random.default_rng(15).integers(n, size=(RESAMPLES, n))].mean(axis=1)
    low, high = np.quantile(drawn, interval_ends(n))
    return CouplingInterval(value=float(found.mean()), low=float(low), high=float(high))


def chains_to_see(bias: float) -> int:
    """Return how many chains are needed to see a bias, in errors of one measurement, in 95 % of all studies.

    The mean over n chains has the error 1 / sqrt(n) of a measurement's: n = (3.29 / bias)^2.
    """
    return ceil((SEEN / bias) ** 2)


def least_seen(variance: float) -> float:
    """Return the bias that is seen in 95 % of all studies, all in errors of a measurement: `variance` of the mean."""
    return SEEN * sqrt(variance)


def kinds_tested(chains: Iterable[ChainContext], **more: Any) -> tuple[TestedKind, ...]:
    """Return the kinds that chains are of."""
    kinds: dict[tuple[Literal["heatbath", "hmc"], int], list[ChainContext]] = {}
    for chain in chains:
        kinds.setdefault((chain.algorithm, chain.flavors), []).append(chain)
    return tuple(
        TestedKind(
            algorithm=algorithm,
            flavors=flavors,
            n_t=tuple(sorted({c.dims[3] for c in alike})),
            aspect=(min(c.aspect for c in alike), max(c.aspect for c in alike)),
            **more,
        )
        for (algorithm, flavors), alike in sorted(kinds.items())
    )


class PeakScore(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the peak is on an N_t that was left out: root mean squares in beta of what each says."""

    n_t: int
    clusters: int
    head: float
    curve: float
    """The transition curve, an interpolation in N_t."""
    two_loop: float


class PeakSpread(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far a reading of the peak is off, in beta, up to a distance |x| from where the curve has it."""

    x: float
    error: float


class FaultScore(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many chains with a fault are found within 64 updates, and after how many in the median; by rules and head."""

    fault: str
    chains: int
    found_by_rules: float
    found_with_head: float
    delay_by_rules: float | None
    delay_with_head: float | None


class FaultGate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The gate: thresholds of one false alarm in 10^5 updates of training chains, and what they did on test chains."""

    threshold: float
    """Of the anomaly head."""
    band: float
    """Of the plaquette, in deviations from the chain's running mean."""
    updates: int
    """Of sound test chains."""
    alarms_by_rules: int
    alarms_with_head: int
    faults: tuple[FaultScore, ...]


class StopRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule: its mean length, the share of chains it stops before their label, and the bias it leaves.

    Biases are means over clusters of (visit - equilibrium) in errors of one visit, of hot and of cold chains apart,
    with intervals that draw clusters again. A rule is unbiased where all four intervals are within +-0.3.
    """

    rule: str
    length: float
    premature: float
    plaquette_hot: CouplingInterval
    plaquette_cold: CouplingInterval
    polyakov_hot: CouplingInterval
    polyakov_cold: CouplingInterval
    unbiased: bool


class StopStudy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How warm-ups may be ended: what was measured, and every rule."""

    lattices: int
    clusters: int
    chains: int
    """Of one start."""
    shortest: int
    longest: int
    measured: int
    sure: float
    in_a_row: int
    factor: float
    """The head's rule: this many times the frames until it was sure; chosen on training chains."""
    rules: tuple[StopRule, ...]


class HeadsEvaluation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the heads of a layout are worth on held-out chains."""

    heads: tuple[HeadScore, ...]
    thermalisation_stop: StopStudy
    tested_on: tuple[TestedKind, ...] = ()
    """The chains that all of it is about."""
    peak: tuple[PeakScore, ...] = ()
    peak_spread: tuple[PeakSpread, ...] = ()
    gate: FaultGate | None = None
    unknown: tuple[str, ...] = ()
    """Couplings whose hot and cold chains do not agree: they have no equilibrium, and no labels of it."""
    test_seeds: tuple[int, ...] = ()
    """Of the random numbers of the test chains."""


def shipped_evaluation(layout: str) -> HeadsEvaluation:
    """Return all that was measured of the network that comes with the package."""
    return msgspec.json.decode((FOLDER / f"{layout}.json").read_bytes(), type=HeadsEvaluation)
