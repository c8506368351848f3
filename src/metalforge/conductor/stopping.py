r"""Whether the thermalisation head may end a warm-up: trajectories saved, and the bias that the early start leaves.

Fresh chains from hot and cold starts, at couplings that no head was trained on. A rule says at which trajectory the
measurement starts, `FIXED` at the latest; the measurement is the mean of the next `MEASURED` trajectories, and its bias
the distance from the long runs, averaged over the chains of a coupling:

    bound = (|mean(x_i) - truth| + 1.645 sqrt(var(x) / n + error(truth)^2)) / sigma

in units of the error `sigma` of one standard measurement, which starts after `FIXED` trajectories. A rule is called
unbiased when the largest bound over couplings, of the plaquette and of |L|, is below 0.3. Biases of hot and cold starts
have opposite signs and may cancel, so the largest of either start alone is given too. The control that starts at
trajectory 3 must fail, or the test could not have seen a bias.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np

from .chains import ChainEntry, ChainRecord, Corpus, Doubles, Reference, ReferenceEntry
from .corpus import measured, run_chains, run_references
from .corpus_spec import STARTS, CorpusSpec, Grid
from .criteria import says
from .dataset import Example, frames_of, meta_rows
from .ensemble import values_of
from .features import scaled
from .heads_training import Trained
from .labels import band_of, first_inside
from .scores import StopRule, StopStudy
from .stop_rule import IN_A_ROW, SURE, choose_factor, first_sure, first_yes, thermalisation_head

__all__ = ["stop_study"]

FIXED = 150
MEASURED = 100
CONTROL = 3
ALLOWED = 0.3
CHAINS, LONG = 300, 4000
"""Chains at each coupling, and updates of each long run. With n chains the margin alone is 1.645 / sqrt(n), and with
fewer than about 300 chance takes even a rule without bias over the limit at one of ten places."""
STREAM, APART = 1 << 22, 1000
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
    examples: Sequence[Example],
    *,
    rule_from: Trained | None = None,
    quick: bool = False,
    chains: int | None = None,
    workers: int = 1,
) -> StopStudy:
    """Run fresh chains, so many at each coupling, and judge every rule on them.

    The head's rule is chosen on training chains: `rule_from` is a network that was fitted to `examples`, `trained`
    itself where None.
    """
    head = thermalisation_head(trained)
    factor = choose_factor(rule_from or trained, examples)
    spec = msgspec.json.decode(corpus.spec_json, type=CorpusSpec)
    grid = max((g for g in spec.grids if not g.flavors), key=lambda g: np.prod(g.dims))
    count = chains or (4 if quick else CHAINS)
    betas = grid.test
    long = msgspec.structs.replace(spec, reference=spec.reference if quick else LONG)
    where = [(ReferenceEntry(beta=beta, dims=grid.dims), STREAM - 2 * (i + 1)) for i, beta in enumerate(betas)]
    truths = list(run_references(where, long, workers=workers))
    ran = list(run_chains(_entries(grid, betas, count, spec), spec, workers=workers))
    places = [_place(truth, ran[i * count : (i + 1) * count]) for i, truth in enumerate(truths)]
    rules: dict[str, Rule] = {
        "head": lambda chain: _head_stops(trained, head, corpus, chain, factor),
        "MSER": lambda chain: first_yes(says("MSER", chain) > 0),
        "Geweke": lambda chain: first_yes(says("Geweke", chain) > 0),
        "fixed": lambda chain: FIXED,
        f"trajectory {CONTROL}": lambda chain: CONTROL,
    }
    return StopStudy(
        betas=betas,
        dims=grid.dims,
        chains=count,
        fixed=FIXED,
        measured=MEASURED,
        sure=SURE,
        in_a_row=IN_A_ROW,
        factor=factor,
        rules=tuple(_judge(name, rule, places) for name, rule in rules.items()),
    )


def _entries(grid: Grid, betas: Sequence[float], count: int, spec: CorpusSpec) -> list[ChainEntry]:
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
        hot, cold = (measured(run) for run in reference.series[:, :, column])
        truth[name] = ((hot.mean + cold.mean) / 2, float(np.hypot(hot.error, cold.error)) / 2)
    band = band_of(reference)
    lengths = [None if band is None else first_inside(chain.column("wilson_loop"), band) for chain in chains]
    return _Place(reference.entry.beta, chains, truth, lengths)


def _judge(name: str, rule: Rule, places: Sequence[_Place]) -> StopRule:
    saved, premature, by_start = [], [], []
    bounds: dict[str, list[tuple[float, float]]] = {"P": [], "|L|": []}
    for place in places:
        starts = [min(rule(chain), FIXED) for chain in place.chains]
        saved += [1 - start / FIXED for start in starts]
        premature += [
            float(length is None or start < length) for start, length in zip(starts, place.lengths, strict=True)
        ]
        for what, (truth, error) in place.truth.items():
            series = [_observable(chain, what) for chain in place.chains]
            found = np.array([x[s : s + MEASURED].mean() for x, s in zip(series, starts, strict=True)])
            sigma = float(np.std([x[FIXED : FIXED + MEASURED].mean() for x in series], ddof=1))
            margin = 1.645 * np.sqrt(found.var(ddof=1) / len(found) + error**2)
            bounds[what].append((float((abs(found.mean() - truth) + margin) / sigma), place.beta))
            by_start += [float(abs(found[k::2].mean() - truth) / sigma) for k in range(2)]
    worst = {what: max(values) for what, values in bounds.items()}
    what = max(worst, key=lambda key: worst[key])
    return StopRule(
        rule=name,
        saved=float(np.mean(saved)),
        premature=float(np.mean(premature)),
        bias_plaquette=worst["P"][0],
        bias_polyakov=worst["|L|"][0],
        worst=f"{what} at {worst[what][1]:g}",
        one_start=max(by_start),
        unbiased=max(worst.values())[0] < ALLOWED,
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
