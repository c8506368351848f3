r"""What a rule that ends warm-ups is worth, on chains that were recorded whole: saved, premature, and what is left.

Chains that reject most of their trajectories are left out: they are broken, not early or late. A chain of n
trajectories has a standard warm-up of n / 4 and a measurement of n / 2 after it (50 and 100 for the 200 of the default
corpus, as in the published design's experiment). A rule starts the measurement at another trajectory `start`:

    saved      = n / 4 - start                     trajectories, at the same length of measurement
    premature  = start before the chain stays in the band of equilibrium (the label of thermalisation)
    left       = sign (mean plaquette of the measurement - that of equilibrium) / sigma
    added      = left - left of the standard start of the same chain: the bias that starting elsewhere adds

`sigma` is the error of a standard measurement at the same coupling (Gamma method, averaged over chains), and `sign` is
that of the start minus equilibrium, so that what is left of a start is positive for hot and cold alike and does not
cancel. Intervals come from drawing whole chains again.

And what steering between couplings is worth on the lattice of the corpus: trajectories for the same error on beta_c.
Virtual campaigns on a tape of 4^3 x 2 (long chains on a grid of beta, made once): an even scan and the Gaussian process
spend the same budget, warm-ups included, with the same seeds. Errors of beta_c fall as budget^(-1/2), so

    ratio = sum (beta_c - reference)^2 of the steered runs / the same of even scans

is the share of trajectories that gives the same error; the reference is beta_c of the whole tape. A run that does not
find beta_c has the error of a guess, the range / sqrt(12). The interval draws seeds again. Experiment `steering` does
this on 8^3 x 4, for more steerers and ranges.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.heads.baselines import says
from experiments.heads.labels import Example, Labeller
from metalforge.campaign.analysis.transition import locate
from metalforge.campaign.steerers import GaussianProcess, build_steerer
from metalforge.conductor.early_stop import first_yes
from metalforge.core.arrays import Doubles
from metalforge.core.steering import Steerer
from metalforge.reservoir.metrics import Interval, wilson
from metalforge.statistics import gamma_method

from .protocol import Settings
from .virtual_campaign import Rules, TapeSource, TapeSpec, run_campaign, tape_of

RESAMPLES = 1000
SOUND = 0.5
"""Share of accepted trajectories below which a chain is broken rather than slow."""
STANDARD, MEASURED = 4, 2
"""A chain's length over that of its standard warm-up, and over that of a measurement."""
RANGES = ((4.7, 5.5), (4.9, 5.3))
"""The couplings of the corpus on this lattice, and the half of them around the transition: apart, since an even scan
wastes little of a range that is hardly wider than the peak."""
POINTS = 9
INITIAL = 4


class Judged(NamedTuple):
    """What a rule did to warm-ups: trajectories saved a chain, share started too early, what is left, what it added."""

    saved: Interval
    premature: Interval
    left: Interval
    added: Interval


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WarmUps:
    """Chains whose label is known, with the equilibrium of their coupling."""

    chains: tuple[Example, ...]
    truth: Doubles
    sigma: Doubles

    @classmethod
    def of(cls, examples: Sequence[Example], labeller: Labeller) -> "WarmUps":
        """Return the quenched chains among some examples that move and have a label."""
        known = tuple(e for e in examples if e.length is not None and _moves(e) and not e.chain.entry.flavors)
        places = [e.chain.entry.place for e in known]
        equilibria = [labeller.known(e.chain.entry) for e in known]
        truth = [one.plaquette.mean for one in equilibria if one is not None]
        n = min((len(e.inputs) for e in known), default=0)
        errors = [gamma_method(e.chain.column("plaquette")[n // STANDARD :][: n // MEASURED]).error for e in known]
        sigma = [
            float(np.sqrt(np.mean([error**2 for error, p in zip(errors, places, strict=True) if p == place])))
            for place in places
        ]
        return cls(chains=known, truth=np.array(truth), sigma=np.array(sigma))

    @property
    def length(self) -> int:
        """Trajectories of a chain."""
        return min(len(e.inputs) for e in self.chains)

    @property
    def standard(self) -> int:
        """Trajectories of a standard warm-up."""
        return self.length // STANDARD

    @property
    def measured(self) -> int:
        """Trajectories of a measurement."""
        return self.length // MEASURED

    @property
    def labels(self) -> NDArray[np.int64]:
        """The trajectory from which each chain stays in its band."""
        return np.array([e.length for e in self.chains], np.int64)

    def starts(self, rule: Callable[[Example], float]) -> NDArray[np.int64]:
        """Return where a rule starts measuring."""
        return self.at(np.array([float(rule(e)) for e in self.chains]))

    def at(self, lengths: Doubles) -> NDArray[np.int64]:
        """Return starts after so many trajectories; never so late that the recorded chain ends first."""
        return np.clip(np.ceil(lengths).astype(np.int64), 1, self.length - self.measured)

    def judge(self, starts: NDArray[np.int64]) -> Judged:
        """Return what these starts save and leave."""
        n, premature = len(starts), int((starts < self.labels).sum())
        share = wilson(premature, n)
        left = self._left(starts)
        added = left - self._left(np.full(n, self.standard))
        return Judged(
            bootstrap(lambda drawn: float((self.standard - starts[drawn]).mean()), n),
            Interval(premature / n, share.low, share.high),
            bootstrap(lambda drawn: float(np.mean(left[drawn])), n),
            bootstrap(lambda drawn: float(np.mean(added[drawn])), n),
        )

    def _left(self, starts: NDArray[np.int64]) -> Doubles:
        found = [
            e.chain.column("plaquette")[s : s + self.measured].mean() for e, s in zip(self.chains, starts, strict=True)
        ]
        sign = np.array([-1.0 if e.chain.entry.start == "hot" else 1.0 for e in self.chains])
        return np.asarray(sign * (np.array(found) - self.truth) / self.sigma)

    def at_equal_premature(self, lengths: Doubles) -> Interval:
        """Return the trajectories per chain that predicted lengths save against one length for all.

        Either is as short as can be while it ends too early as often as the standard length does: so many are added to
        every prediction.
        """
        labels = self.labels.astype(float)

        def saved(drawn: NDArray[np.int64]) -> float:
            here, said = labels[drawn], lengths[drawn]
            share = float((self.standard < here).mean())
            constant = offset_for(np.zeros(len(here)), here, share)
            return constant - float(said.mean()) - offset_for(said, here, share)

        return bootstrap(saved, len(labels))


def _moves(example: Example) -> bool:
    return float(np.nanmean(example.chain.column("accepted"))) > SOUND


def bootstrap(figure: Callable[[NDArray[np.int64]], float], n: int) -> Interval:
    """Return a figure of n chains with its percentile interval; `figure` gets the numbers of the chains drawn."""
    rng = np.random.default_rng(20)
    drawn = [figure(rng.integers(n, size=n)) for _ in range(RESAMPLES)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Interval(figure(np.arange(n)), float(low), float(high))


def offset_for(lengths: Doubles, labels: Doubles, premature: float) -> float:
    """Return the least number that, added to lengths, starts at most this share of the chains before their label."""
    short = np.sort(labels - lengths)
    # Rounded first: a share that is k / n must leave k of n, whatever its last bit.
    kept = int(np.ceil(round(len(short) * (1 - premature), 9)))
    return float(short[max(kept - 1, 0)])


def mser_start(example: Example) -> int:
    """Return after how many trajectories MSER first calls the plaquettes thermalised; all where it never does."""
    return first_yes(says("MSER", example) > 0) + 1


def pooled_mean(values: Sequence[Doubles]) -> Callable[[NDArray[np.int64]], float]:
    """Return a figure for `bootstrap`: the mean over all rows of the chains that were drawn."""
    sums = np.array([part.sum() for part in values])
    counts = np.array([len(part) for part in values])

    def mean(drawn: NDArray[np.int64]) -> float:
        total = counts[drawn].sum()
        return float(sums[drawn].sum() / total) if total else float("nan")

    return mean


class Steered(NamedTuple):
    """The ratio of trajectories at the same error, RMS errors of both, and how many runs did not find beta_c."""

    range: tuple[float, float]
    ratio: Interval
    steered: float
    even: float
    lost: tuple[int, int]
    seeds: int
    budget: int

    @property
    def saved(self) -> Interval:
        """The share of trajectories that steering saves at the same error."""
        return Interval(1 - self.ratio.value, 1 - self.ratio.high, 1 - self.ratio.low)


def steer(settings: Settings, low: float, high: float) -> Steered:
    """Return what the Gaussian process needs of an even scan's trajectories, over one range."""
    spec = TapeSpec(
        dims=(4, 4, 4, 2),
        betas=tuple(round(float(b), 4) for b in np.linspace(low, high, 9 if settings.quick else 33)),
        updates=(400,) * 9 if settings.quick else (3000,) * 33,
        warmup=100,
        starts=("hot",),
    )
    tape = tape_of("placement-tape", spec, True)
    seeds, rules = (3, Rules(budget=2000, warmup=40)) if settings.quick else (100, Rules(budget=6000, warmup=40))
    truth = locate(tape.series, seed=1).result
    makers: dict[str, Callable[[int], Steerer]] = {
        "steered": lambda seed: GaussianProcess(low, high, initial=INITIAL, fresh_cost=rules.fresh_cost, seed=seed),
        "even": lambda seed: build_steerer("uniform", low, high, points=POINTS),
    }
    errors: dict[str, list[float]] = {name: [] for name in makers}
    lost = dict.fromkeys(makers, 0)
    for k in range(seeds):
        for name, make in makers.items():
            seed = settings.seed + k
            done = run_campaign(make(seed), TapeSource(tape, seed), rules, seed)
            missed = done.error is None
            lost[name] += missed
            errors[name].append((high - low) / np.sqrt(12) if missed else done.beta_c - truth)
    squares = {name: np.square(values) for name, values in errors.items()}
    ratio = bootstrap(lambda drawn: float(squares["steered"][drawn].sum() / squares["even"][drawn].sum()), seeds)
    return Steered(
        (low, high),
        ratio,
        float(np.sqrt(squares["steered"].mean())),
        float(np.sqrt(squares["even"].mean())),
        (lost["steered"], lost["even"]),
        seeds,
        rules.budget,
    )
