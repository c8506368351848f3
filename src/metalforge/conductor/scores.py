r"""Scores of heads on held-out chains, as records, and intervals of their skill.

Chains of one coupling share its physics: what a rule does at another coupling is learnt from other couplings, not from
more chains of the same. So intervals draw couplings again, with all their chains. A bootstrap over n = 5 draws is too
narrow by sqrt((n - 1) / n) and by the difference between Student's and the normal distribution; the percentiles

    Phi(-+ sqrt(n / (n - 1)) t_(0.975, n - 1))

put both back (T. Hesterberg, The American Statistician 69 (2015) 371, "expanded percentile interval"). With five
couplings they are nearly the least and the largest of the five.
"""

from collections.abc import Sequence
from math import sqrt
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtrit

from metalforge.core import SpecError

from .features import ChainContext

FEWEST_CAMPAIGNS = 5
"""Campaigns below which no adopted head is trusted: of four, all have a positive skill by chance once in sixteen times,
of five once in 32."""


class CouplingInterval(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A number and its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:+.2f} ({self.low:+.2f} .. {self.high:+.2f})"


def interval_ends(n: int) -> tuple[float, float]:
    """Return the percentiles of a 95 % interval from n draws."""
    beyond = float(ndtr(-sqrt(n / (n - 1)) * stdtrit(n - 1, 0.975)))
    return beyond, 1 - beyond


def skill_interval(
    loss: Sequence[float], rival: Sequence[float], rows: Sequence[float], *, resamples: int = 2000
) -> CouplingInterval:
    """Return 1 - loss / rival's loss, both sums by cluster, with the interval of drawing clusters again."""
    sums = np.array([loss, rival, rows], np.float64)
    n = sums.shape[1]
    if n < 2:
        raise SpecError(f"an interval over clusters needs at least two. Got {n}")
    drawn = sums[:, np.random.default_rng(15).integers(n, size=(resamples, n))].sum(axis=2)
    low, high = np.quantile(_skills(drawn), interval_ends(n))
    return CouplingInterval(value=float(_skills(sums.sum(axis=1))), low=float(low), high=float(high))


def _skills(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return skills; against a baseline that is never wrong there is nothing to gain."""
    perfect = np.where(sums[0] > 0, -1.0, 0.0)
    return np.asarray(np.where(sums[1] > 0, 1 - sums[0] / np.where(sums[1] > 0, sums[1], 1.0), perfect))


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
    skill_low: float | None = None
    skill_high: float | None = None
    """The 95 % interval of the skill: clusters, all chains of a coupling on a lattice, were drawn again."""
    clusters: int = 0
    of: Literal["sweeps", "trajectories"] = "trajectories"
    """The chains it was tested on: elsewhere it is not in its domain."""
    skill_hot: float | None = None
    skill_cold: float | None = None
    """Of chains of one start alone."""


class AdoptedHead(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A head on campaigns that were left out: root mean squares of its errors, as it was and as it is now.

    `baseline` is that of the head's base curve, or of the mean over the other campaigns; skills are over it. The 95 %
    interval of `skill_after` draws campaigns again. `adopted` says that the weights have the new readout.
    """

    name: str
    campaigns: int
    chains: int
    before: float
    after: float
    baseline: float
    skill_before: float
    skill_after: float
    skill_low: float
    skill_high: float
    adopted: bool

    @property
    def trusted(self) -> bool:
        """Whether the new readout has skill beyond the interval, by campaigns enough for one."""
        return self.campaigns >= FEWEST_CAMPAIGNS and self.skill_low > 0

    @property
    def measured(self) -> str:
        """The skill in words; for a head that is not trusted, also what is lacking."""
        skill = CouplingInterval(value=self.skill_after, low=self.skill_low, high=self.skill_high)
        said = f"skill {skill} on {self.campaigns} campaigns that were left out"
        if self.skill_low <= 0:
            return f"{said}, which is not positive beyond its interval"
        return said if self.trusted else f"{said}; at least {FEWEST_CAMPAIGNS} campaigns are needed"

    def scored(self, score: HeadScore) -> HeadScore:
        """Return the package's score of this head with what was measured of its new readout; trusted where both are."""
        return msgspec.structs.replace(
            score,
            metric="rmse",
            value=self.after,
            low=self.after,
            high=self.after,
            baseline=self.baseline,
            baseline_name="baseline of the campaigns",
            skill=self.skill_after,
            trusted=self.trusted and score.trusted,
            skill_low=self.skill_low,
            skill_high=self.skill_high,
            clusters=self.campaigns,
            skill_hot=None,
            skill_cold=None,
        )


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


class HeadScores(msgspec.Struct, frozen=True, kw_only=True):
    """What the heads of a layout are worth on held-out chains, of which kinds these were."""

    heads: tuple[HeadScore, ...]
    tested_on: tuple[TestedKind, ...] = ()
    """The chains that all of it is about."""
