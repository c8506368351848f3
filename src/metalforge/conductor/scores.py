r"""What is measured of heads, as records: scores on held-out chains, and what an early stop of warm-up costs.

Chains of one coupling share its physics: what a rule does at another coupling is learnt from other couplings, not from
more chains of the same. So intervals draw couplings again, with all their chains. A bootstrap over n = 5 draws is too
narrow by sqrt((n - 1) / n) and by the difference between Student's and the normal distribution; the percentiles

    Phi(-+ sqrt(n / (n - 1)) t_(0.975, n - 1))

put both back (T. Hesterberg, The American Statistician 69 (2015) 371, "expanded percentile interval"). With five
couplings they are nearly the least and the largest of the five.
"""

from collections.abc import Iterable, Sequence
from math import ceil, sqrt
from typing import Any, Literal

import msgspec
import numpy as np
from scipy.stats import norm, t

from metalforge.core.errors import SpecError

from .features import ChainContext

RESAMPLES = 20_000
SEEN = 3.29
"""Errors that a bias must be away from zero: 1.645 to be called one (5 %, one side) and 1.645 more to be seen in 95 %
of all studies."""


class CouplingInterval(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A number and its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:+.2f} ({self.low:+.2f} .. {self.high:+.2f})"


def over_couplings(values: Sequence[float]) -> CouplingInterval:
    """Return the mean of one value per coupling, with the interval of drawing couplings again."""
    n = len(values)
    if n < 2:
        raise SpecError(f"an interval over couplings needs at least two. Got {n}")
    found = np.asarray(values, np.float64)
    drawn = found[np.random.default_rng(15).integers(n, size=(RESAMPLES, n))].mean(axis=1)
    beyond = float(norm.cdf(-sqrt(n / (n - 1)) * t.ppf(0.975, n - 1)))
    low, high = np.quantile(drawn, [beyond, 1 - beyond])
    return CouplingInterval(value=float(found.mean()), low=float(low), high=float(high))


def chains_to_see(bias: float) -> int:
    """Return how many chains are needed to see a bias, in errors of one measurement, in 95 % of all studies.

    The mean over n chains has the error 1 / sqrt(n) of a measurement's: n = (3.29 / bias)^2.
    """
    return ceil((SEEN / bias) ** 2)


def least_seen(variance: float) -> float:
    """Return the bias that is seen in 95 % of all studies, all in errors of a measurement: `variance` of the mean."""
    return SEEN * sqrt(variance)


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


class TestedKind(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Chains of one kind that heads were trained and tested on: what their scores are about."""

    __test__ = False

    algorithm: Literal["heatbath", "hmc"]
    flavors: int = 0
    n_t: tuple[int, ...]
    aspect: tuple[float, float]
    """The least and the largest N_s / N_t."""
    integrators: tuple[str, ...] = ()
    """Of trajectories; none said: any."""
    heads: tuple[str, ...] = ()
    """Heads that were tested on them; none said: all."""

    @classmethod
    def of(cls, chains: Iterable[ChainContext], **more: Any) -> "tuple[TestedKind, ...]":
        """Return the kinds that chains are of."""
        kinds: dict[tuple[Literal["heatbath", "hmc"], int], list[ChainContext]] = {}
        for chain in chains:
            kinds.setdefault((chain.algorithm, chain.flavors), []).append(chain)
        return tuple(
            cls(
                algorithm=algorithm,
                flavors=flavors,
                n_t=tuple(sorted({c.dims[3] for c in alike})),
                aspect=(min(c.aspect for c in alike), max(c.aspect for c in alike)),
                **more,
            )
            for (algorithm, flavors), alike in sorted(kinds.items())
        )

    def lacks(self, chain: ChainContext, integrator: str = "") -> str | None:
        """Return what a chain is that none of these was; None where it is of their kind."""
        if chain.action != "wilson":
            return f"Wilson's action, not {chain.action}"
        if chain.algorithm != self.algorithm:
            return f"{_MOVES[self.algorithm]}, not {_MOVES[chain.algorithm]}"
        if chain.flavors != self.flavors:
            return f"{self.flavors or 'no'} flavours of sea quarks, not {chain.flavors or 'none'}"
        if self.integrators and integrator and integrator not in self.integrators:
            return f"{', '.join(self.integrators)} trajectories, not {integrator}"
        if chain.dims[3] not in self.n_t:
            return f"N_t = {', '.join(map(str, self.n_t))}, not {chain.dims[3]}"
        if not self.aspect[0] - 1e-9 <= chain.aspect <= self.aspect[1] + 1e-9:
            return f"N_s / N_t from {self.aspect[0]:g} to {self.aspect[1]:g}, not {chain.aspect:.3g}"
        return None


_MOVES = {"heatbath": "heat bath sweeps", "hmc": "HMC trajectories"}


class HeadsEvaluation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that `conductor evaluate --json` prints."""

    heads: tuple[HeadScore, ...]
    thermalisation_stop: StopStudy
    tested_on: tuple[TestedKind, ...] = ()
    """The chains that all of it is about."""
