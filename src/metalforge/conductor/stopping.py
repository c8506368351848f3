r"""Whether the thermalisation head may end a warm-up: trajectories saved, and the bias that the early start leaves.

Fresh chains from hot and cold starts, at couplings that no head was trained on. A rule says at which trajectory the
measurement starts, `FIXED` at the latest; the measurement is the mean of the next `MEASURED` trajectories, and its bias
the distance from the long runs, averaged over the chains of a coupling:

    bound = (|mean(x_i) - truth| + 1.645 sqrt(var(x) / n + error(truth)^2)) / sigma
    left  = (mean of cold x_i - mean of hot x_i) / 2 sigma

in units of the error `sigma` of one standard measurement, which starts after `FIXED` trajectories. The bound is given
for the worst coupling. Biases of hot and cold starts have opposite signs and may cancel in it, which they do not in
`left`: its mean over couplings has an interval that draws couplings again, not chains (`scores`), and is wide, since
there are few. A rule is called unbiased when the largest bound, of the plaquette and of |L|, and the ends of both
intervals are below 0.3.

Beside the head stand classical criteria and fixed lengths, one of them the mean length of the head's own rule: a head
that looks at the chain is worth something only where it leaves less than that. The control that starts at trajectory 3
must fail, or the test could not have seen a bias.

The head's rule, stop = factor * (trajectories until the head was above 0.9 for 10 in a row: `early_stop`), has one free
number. A head says when a chain has entered its equilibrium band; what is left of a transient then is still as large as
a fluctuation, and takes about as long again to vanish, several times for slow modes. `factor` is the least of `FACTORS`
with which at most `PREMATURE` of the training chains stop before their label, judged by what the head said of couplings
that were left out when it was fitted. Chains that reject most of their trajectories do not count.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np

from metalforge.core.errors import SpecError
from metalforge.statistics import gamma_method

from .baselines import says
from .chains import ChainEntry, ChainRecord, Corpus, Doubles, Reference
from .corpus import run_chains, run_references
from .corpus_spec import STARTS, CorpusGrid, CorpusSpec
from .early_stop import IN_A_ROW, SURE, first_sure, first_yes
from .features import ChainContext, scaled
from .heads_training import Trained
from .labels import Example, band_of, first_inside, frames_of, meta_rows
from .layouts import LABEL_OF
from .predicting import values_of
from .scores import StopRule, StopStudy, chains_to_see, over_couplings

FACTORS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0)
PREMATURE = 0.01
SOUND = 0.5
"""Share of accepted trajectories below which a chain is broken rather than slow."""


def thermalisation_head(trained: Trained) -> str:
    """Return the name of the trained head for thermalisation."""
    for name in trained.fits:
        if LABEL_OF.get(name, name) == "thermalization":
            return name
    raise SpecError("an early stop needs a trained thermalisation head")


def choose_factor(trained: Trained, examples: Sequence[Example]) -> float:
    """Return the factor for a network that was fitted to these chains; the largest where none is safe enough."""
    left_out = trained.left_out.get(thermalisation_head(trained))
    if left_out is None:
        raise SpecError("the rule is chosen by what was left out in training, which weights of a file do not carry")
    first, wanted = [], []
    for i in np.unique(left_out.chain[left_out.inside]):
        length, accepted = examples[i].labels.length, examples[i].chain.column("accepted")
        if length is not None and np.nanmean(accepted) > SOUND:
            first.append(first_sure(left_out.said[left_out.chain == i]))
            wanted.append(length)
    for factor in FACTORS:
        if first and np.mean(factor * np.array(first) < np.array(wanted)) <= PREMATURE:
            return factor
    return FACTORS[-1]


FIXED = 150
MEASURED = 100
CONTROL = 3
ALLOWED = 0.3
SHORTER = (50, 100)
"""Fixed lengths beside the longest and the head's mean."""
CHAINS = 2 * chains_to_see(ALLOWED)
"""Chains at each coupling: so many of either start that a bias of 0.3 in one start is seen in 95 % of all studies.
Fixed by that calculation before these chains were run: an earlier study went from 100 to 180 to 300 chains until the
head passed, which is why these have streams of their own."""
LONG = 4000
"""Updates of each long run."""
STREAM, APART = 1 << 23, 1000
"""Streams of these chains start here, and those of the next coupling so much further on."""
Rule: TypeAlias = Callable[[ChainRecord], int]


class _Place(NamedTuple):
    """The chains of one coupling, the trajectories that their labels take, and the truth (mean, error) of P and |L|."""

    beta: float
    chains: Sequence[ChainRecord]
    truth: Mapping[str, tuple[float, float]]
    lengths: Sequence[int | None]


def stop_study(
    trained: Trained,
    corpus: Corpus,
    *,
    factor: float,
    quick: bool = False,
    chains: int | None = None,
    workers: int = 1,
) -> StopStudy:
    """Run fresh chains, so many at each coupling, and judge every rule on them.

    `factor` is that of the head's rule (`choose_factor`). Of the corpus only the specification and what the long runs
    found at training couplings are used.
    """
    head = thermalisation_head(trained)
    spec = msgspec.json.decode(corpus.spec_json, type=CorpusSpec)
    grid = studied(spec)
    count = chains or (4 if quick else CHAINS)
    betas = grid.test
    long = msgspec.structs.replace(spec, reference=spec.reference if quick else LONG)
    where = [(ChainContext(beta=beta, dims=grid.dims), STREAM - 2 * (i + 1)) for i, beta in enumerate(betas)]
    truths = list(run_references(where, long, workers=workers))
    ran = list(run_chains(_entries(grid, betas, count, spec), spec, workers=workers))
    places = [_place(truth, ran[i * count : (i + 1) * count]) for i, truth in enumerate(truths)]
    rules: dict[str, Rule] = {
        "head": lambda chain: _head_stops(trained, head, corpus, chain, factor),
        "MSER": lambda chain: first_yes(says("MSER", chain) > 0),
        "Geweke": lambda chain: first_yes(says("Geweke", chain) > 0),
    }
    starts = {name: [[min(rule(chain), FIXED) for chain in p.chains] for p in places] for name, rule in rules.items()}
    mean = round(float(np.mean(starts["head"])))
    fixed = {f"fixed, the head's mean ({mean})": mean} | {f"fixed, {n}": n for n in SHORTER}
    fixed |= {"fixed": FIXED, f"trajectory {CONTROL}": CONTROL}
    starts |= {name: [[n] * count for _ in places] for name, n in fixed.items()}
    return StopStudy(
        betas=betas,
        dims=grid.dims,
        chains=count,
        fixed=FIXED,
        measured=MEASURED,
        sure=SURE,
        in_a_row=IN_A_ROW,
        factor=factor,
        rules=tuple(_judge(name, where, places) for name, where in starts.items()),
    )


def studied(spec: CorpusSpec) -> CorpusGrid:
    """Return the grid whose test couplings are studied: the largest lattice without sea quarks."""
    return max((grid for grid in spec.grids if not grid.flavors), key=lambda grid: np.prod(grid.dims))


def _entries(grid: CorpusGrid, betas: Sequence[float], count: int, spec: CorpusSpec) -> list[ChainEntry]:
    # The finest steps: a chain that rejects everything is not early or late, but broken.
    tau, n_steps = min(grid.steps, key=lambda step: step[0] / step[1])
    return [
        ChainEntry(
            part="test",
            beta=beta,
            dims=grid.dims,
            start=STARTS[1 - k % 2],
            tau=tau,
            n_steps=n_steps,
            stream=STREAM + i * APART + k,
            trajectories=FIXED + MEASURED,
            untested=spec.untested,
        )
        for i, beta in enumerate(betas)
        for k in range(count)
    ]


def _place(reference: Reference, chains: Sequence[ChainRecord]) -> _Place:
    truth = {}
    for name, column in (("P", 2), ("|L|", 1)):
        hot, cold = (gamma_method(run) for run in reference.series[:, :, column])
        truth[name] = ((hot.mean + cold.mean) / 2, float(np.hypot(hot.error, cold.error)) / 2)
    band = band_of(reference)
    lengths = [None if band is None else first_inside(chain.column("wilson_loop"), band) for chain in chains]
    return _Place(reference.entry.beta, chains, truth, lengths)


def _judge(name: str, starts: Sequence[Sequence[int]], places: Sequence[_Place]) -> StopRule:
    premature, by_start = [], []
    bounds: dict[str, list[tuple[float, float]]] = {"P": [], "|L|": []}
    left: dict[str, list[float]] = {"P": [], "|L|": []}
    for place, here in zip(places, starts, strict=True):
        premature += [
            float(length is None or start < length) for start, length in zip(here, place.lengths, strict=True)
        ]
        for what, (truth, error) in place.truth.items():
            series = [_observable(chain, what) for chain in place.chains]
            found = np.array([x[s : s + MEASURED].mean() for x, s in zip(series, here, strict=True)])
            sigma = float(np.std([x[FIXED : FIXED + MEASURED].mean() for x in series], ddof=1))
            margin = 1.645 * np.sqrt(found.var(ddof=1) / len(found) + error**2)
            bounds[what].append((float((abs(found.mean() - truth) + margin) / sigma), place.beta))
            cold, hot = (float(found[k::2].mean()) for k in range(2))
            by_start += [abs(cold - truth) / sigma, abs(hot - truth) / sigma]
            left[what].append((cold - hot) / (2 * sigma))
    worst = {what: max(values) for what, values in bounds.items()}
    what = max(worst, key=lambda key: worst[key])
    intervals = {key: over_couplings(values) for key, values in left.items()}
    largest = max(*(bound for bound, _ in worst.values()), *(max(-x.low, x.high) for x in intervals.values()))
    return StopRule(
        rule=name,
        saved=1 - float(np.mean(starts)) / FIXED,
        premature=float(np.mean(premature)),
        bias_plaquette=worst["P"][0],
        bias_polyakov=worst["|L|"][0],
        worst=f"{what} at {worst[what][1]:g}",
        one_start=max(by_start),
        unbiased=largest < ALLOWED,
        left_plaquette=intervals["P"],
        left_polyakov=intervals["|L|"],
    )


def _observable(chain: ChainRecord, what: str) -> Doubles:
    return chain.column("polyakov") if what == "|L|" else chain.plaquette


def _head_stops(trained: Trained, head: str, corpus: Corpus, chain: ChainRecord, factor: float) -> int:
    """Return the trajectory at which the head's rule starts to measure."""
    # A head that is not sure by then stops at `FIXED` whatever it says later.
    seen = int(FIXED / factor) + 1
    frames = frames_of(ChainRecord(entry=chain.entry, series=chain.series[:seen]), meta_rows(corpus, chain))
    inputs = np.stack([scaled(frame) for frame in frames])
    return int(np.ceil(factor * first_sure(values_of(trained, inputs)[head])))
