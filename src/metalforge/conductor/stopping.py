r"""Whether the thermalisation head may end a warm-up: trajectories saved, and the bias that the early start leaves.

Fresh chains from hot and cold starts, at couplings that no head was trained on. A rule says at which trajectory the
measurement starts; the measurement is the mean of the next `MEASURED` trajectories, and its bias the distance from the
long runs, averaged over the chains:

    bound = (|mean(x_i) - truth| + 1.645 sqrt(var(x) / n + error(truth)^2)) / sigma

in units of the error `sigma` of one standard measurement, which starts after `FIXED` trajectories. A rule is called
unbiased when the largest bound over couplings, of the plaquette and of |L|, is below 0.3. The control that starts at
trajectory 3 must fail, or the test could not have seen a bias.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from metalforge.core.errors import SpecError

from .chains import ChainEntry, ChainRecord, Corpus, Doubles, Reference, ReferenceEntry
from .corpus import CorpusSpec, Grid, measured, run_chains, run_references
from .dataset import frames_of, meta_rows
from .ensemble import values_of
from .features import scaled
from .heads_training import Trained
from .labels import band_of, first_inside

__all__ = ["StopRule", "StopStudy", "stop_study"]

FIXED = 50
MEASURED = 50
SURE = 0.8
"""The probability of the head from which a chain counts as thermalised, in `IN_A_ROW` trajectories in a row."""
IN_A_ROW = 3
CONTROL = 3
ALLOWED = 0.3
STREAM = 1 << 21
HEADS = ("thermalization", "therm_detect")


class StopRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule: share of warm-up trajectories saved, share of chains stopped before their label, and bounds of bias.

    The bounds are the largest over the couplings, in errors of a standard measurement.
    """

    rule: str
    saved: float
    premature: float
    bias_plaquette: float
    bias_polyakov: float
    unbiased: bool


class StopStudy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was run, and every rule."""

    betas: tuple[float, ...]
    dims: tuple[int, int, int, int]
    chains: int
    """At each coupling, half of them from hot."""
    fixed: int
    measured: int
    rules: tuple[StopRule, ...]


class _Place(NamedTuple):
    """The chains of one coupling, where each rule starts measuring, and the truth (mean, error) of P and |L|."""

    chains: Sequence[ChainRecord]
    truth: dict[str, tuple[float, float]]
    lengths: Sequence[int | None]


def stop_study(
    trained: Trained, corpus: Corpus, *, quick: bool = False, chains: int | None = None, workers: int = 1
) -> StopStudy:
    """Run fresh chains and judge every rule on them."""
    head = next((name for name in HEADS if name in trained.fits), None)
    if head is None:
        raise SpecError("an early stop needs a trained thermalisation head")
    count = chains or (4 if quick else 80)
    spec = msgspec.json.decode(corpus.spec_json, type=CorpusSpec)
    grid = max((g for g in spec.grids if not g.flavors), key=lambda g: np.prod(g.dims))
    long = msgspec.structs.replace(spec, reference=spec.reference if quick else 2000)
    betas = grid.test[:3]
    where = [(ReferenceEntry(beta=beta, dims=grid.dims), STREAM - 2 * (i + 1)) for i, beta in enumerate(betas)]
    truths = list(run_references(where, long, workers=workers))
    ran = list(run_chains(_entries(grid, betas, count, spec), spec, workers=workers))
    places = [_place(truth, ran[i * count : (i + 1) * count]) for i, truth in enumerate(truths)]
    rules: dict[str, Callable[[ChainRecord], int]] = {
        "head": lambda chain: _head_stops(trained, head, corpus, chain),
        "MSER": lambda chain: _first(chain.column("mser") > 0),
        "fixed": lambda chain: FIXED,
        f"trajectory {CONTROL}": lambda chain: CONTROL,
    }
    return StopStudy(
        betas=betas,
        dims=grid.dims,
        chains=count,
        fixed=FIXED,
        measured=MEASURED,
        rules=tuple(_judge(name, rule, places) for name, rule in rules.items()),
    )


def _entries(grid: Grid, betas: Sequence[float], count: int, spec: CorpusSpec) -> list[ChainEntry]:
    return [
        ChainEntry(
            part="test",
            beta=beta,
            dims=grid.dims,
            start="hot" if k % 2 else "cold",
            tau=grid.steps[0][0],
            # Small enough steps: a chain that rejects everything is not early or late, but broken.
            n_steps=2 * grid.steps[0][1],
            stream=STREAM + i * count + k,
            trajectories=FIXED + MEASURED,
            untested=spec.untested,
        )
        for i, beta in enumerate(betas)
        for k in range(count)
    ]


def _place(reference: Reference, chains: Sequence[ChainRecord]) -> _Place:
    truth = {}
    for name, column in (("plaquette", 2), ("polyakov", 1)):
        runs = [measured(run) for run in reference.series[:, :, column]]
        truth[name] = (
            float(np.mean([run.mean for run in runs])),
            float(np.hypot(runs[0].error, runs[1].error)) / 2,
        )
    band = band_of(reference)
    lengths = [None if band is None else first_inside(chain.column("wilson_loop"), band) for chain in chains]
    return _Place(chains, truth, lengths)


def _judge(name: str, rule: Callable[[ChainRecord], int], places: Sequence[_Place]) -> StopRule:
    saved, premature = [], []
    bounds: dict[str, list[float]] = {"plaquette": [], "polyakov": []}
    for place in places:
        starts = [min(rule(chain), FIXED) for chain in place.chains]
        saved += [1 - start / FIXED for start in starts]
        premature += [
            float(length is None or start < length) for start, length in zip(starts, place.lengths, strict=True)
        ]
        for what, (truth, error) in place.truth.items():
            series = [_observable(chain, what) for chain in place.chains]
            found = np.array([x[s : s + MEASURED].mean() for x, s in zip(series, starts, strict=True)])
            standard = np.array([x[FIXED : FIXED + MEASURED].mean() for x in series])
            margin = 1.645 * np.sqrt(found.var(ddof=1) / len(found) + error**2)
            bounds[what].append(float((abs(found.mean() - truth) + margin) / standard.std(ddof=1)))
    worst = {what: max(values) for what, values in bounds.items()}
    return StopRule(
        rule=name,
        saved=float(np.mean(saved)),
        premature=float(np.mean(premature)),
        bias_plaquette=worst["plaquette"],
        bias_polyakov=worst["polyakov"],
        unbiased=max(worst.values()) < ALLOWED,
    )


def _observable(chain: ChainRecord, what: str) -> Doubles:
    if what == "polyakov":
        return chain.column("polyakov")
    return np.asarray((chain.column("plaquette_spatial") + chain.column("plaquette_temporal")) / 2)


def _head_stops(trained: Trained, head: str, corpus: Corpus, chain: ChainRecord) -> int:
    """Return the trajectory at which the head has been sure for some in a row."""
    inputs = np.stack([scaled(frame) for frame in frames_of(chain, meta_rows(corpus, chain))])
    sure = values_of(trained, inputs)[head] > SURE
    run = np.convolve(sure, np.ones(IN_A_ROW), mode="full")[: len(sure)] >= IN_A_ROW
    return _first(run)


def _first(yes: np.typing.NDArray[np.bool_]) -> int:
    """Return the first index that says yes; the last where none does."""
    return int(np.argmax(yes)) if yes.any() else len(yes)
