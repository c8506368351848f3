r"""Experiment exchange: tunnelling and errors per work, with and without replica exchange between couplings.

Three ways to spend the same updates on one volume near its first-order transition:

- *at the peak*: every chain alone, all at the coupling of the peak, which is where a chain crosses most;
- *side by side*: every chain alone, at the couplings of a ladder;
- *exchange*: the same couplings as a ladder, whose replicas swap before every update.

Crossings are counted along replicas, |L| from below <|L|> - sd / 2 to above <|L|> + sd / 2 or back, mean and sd those
of the chains at the peak (`campaign.analysis.phases`); seconds are those of the CPU. What decides is the last column,
the squared error of beta_c times the updates it took, over that of the chains at the peak: what a user pays.

Replicas of one phase fill the couplings on its side of the transition, and only those at the border between the two
cross, from a phase that is hardly metastable there: a ladder has the barrier of its best chain, not a lower one
(T. Neuhaus, M. P. Magiera and U. H. E. Hansmann, Phys. Rev. E 76 (2007) 045701).
"""

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.campaign.analysis.phases import crossings
from metalforge.campaign.analysis.transition import locate
from metalforge.lattice.campaign.series import loop_series
from metalforge.lattice.chain import ChainSpec
from metalforge.lattice.exchange import ReplicaLadder
from metalforge.native.engine import Dims
from metalforge.reservoir.metrics import Interval, mean_interval
from metalforge.statistics import NotLocated
from metalforge.statistics.traffic import Traffic, traffic

from .cache import cached_arrays
from .chains import LOOP, sweeping
from .protocol import Progress, Result, ResultRow, Settings, experiment, row_of, shown, spread, words

Floats = NDArray[np.float64]
WAYS = ("at the peak", "side by side", "exchange")
STARTS = ("hot", "cold")


class Place(NamedTuple):
    """A volume: the coupling of its peak, half of the peak's width, and how long each way is run, how often."""

    dims: Dims
    beta: float
    width: float
    couplings: int
    updates: int
    repeats: int
    warmup: int = 400


PLACES = (
    Place((8, 8, 8, 2), 5.0921, 0.0075, 6, 6_000, 5),
    Place((12, 12, 12, 4), 5.6905, 0.006, 6, 1_000, 5),
    Place((12, 12, 12, 2), 5.0942, 0.0025, 6, 2_000, 5),
)
QUICK = (Place((4, 4, 4, 2), 5.07, 0.06, 3, 200, 2, 40),)
REACH = 2.0
"""Ends of the ladder, in half widths from the peak."""


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The chains of one way on one volume, from streams of their own."""

    dims: Dims
    betas: tuple[float, ...]
    exchange: bool
    warmup: int
    updates: int
    seed: int
    stream: int


def recipe_of(place: Place, way: str, repeat: int, seed: int) -> Recipe:
    """Return the chains of a way; repeats and ways differ in their streams."""
    reach = 0.0 if way == WAYS[0] else REACH * place.width
    betas = tuple(np.linspace(place.beta - reach, place.beta + reach, place.couplings).round(6).tolist())
    stream = 1000 * (len(WAYS) * repeat + WAYS.index(way))
    return Recipe(
        dims=place.dims,
        betas=betas,
        exchange=way == "exchange",
        warmup=place.warmup,
        updates=place.updates,
        seed=seed,
        stream=stream,
    )


def recorded(recipe: Recipe) -> dict[str, Floats]:
    """Return plaquette, loop (re, im) and replica of every row, each (updates, couplings), and CPU seconds."""
    return cached_arrays("exchange", recipe, lambda: _run(recipe))


def _run(r: Recipe) -> dict[str, Floats]:
    first = ChainSpec(dims=r.dims, beta=r.betas[0], seed=r.seed, precision="f32")
    specs = [
        msgspec.structs.replace(first, beta=beta, stream=r.stream + k, start=STARTS[k % 2])
        for k, beta in enumerate(r.betas)
    ]
    runs = [sweeping(spec, warmup=r.warmup, observed=(*LOOP, "replica")) for spec in specs]
    ladder = ReplicaLadder(runs) if r.exchange else None
    began = time.thread_time()
    for _ in range(r.warmup + r.updates):
        if ladder is not None:
            ladder.exchange()
        for run in runs:
            run.step()
    seconds = time.thread_time() - began
    columns = {name: np.array([run.log.columns[name][r.warmup :] for run in runs]).T for name in runs[0].log.columns}
    return columns | {"seconds": np.array([seconds])}


class Seen(NamedTuple):
    """What one repeat of a way gave: crossings, round trips, CPU seconds, updates of all chains, and beta_c's error."""

    crossings: int
    round_trips: float
    rates: Floats
    seconds: float
    updates: int
    error: float | None


def seen(recipe: Recipe, rows: dict[str, Floats], low: float, high: float) -> Seen:
    """Return the figures of one repeat, crossings between these two values of |L|."""
    loop = rows["polyakov_re"] + 1j * rows["polyakov_im"]
    by_replica = np.take_along_axis(np.abs(loop), rows["replica"].argsort(axis=1), axis=1)
    count = sum(crossings(track, low, high) for track in by_replica.T)
    moved = traffic(rows["replica"]) if recipe.exchange else Traffic(np.zeros(0), 0.0, recipe.updates)
    ladder = "all" if recipe.exchange else ""
    points = [
        loop_series(
            beta, recipe.dims, rows["plaquette"][:, k], loop[:, k], ladder=ladder, replica=rows["replica"][:, k]
        )
        for k, beta in enumerate(recipe.betas)
    ]
    try:
        error: float | None = locate(points, seed=recipe.seed).error
    except NotLocated:
        error = None
    return Seen(count, moved.round_trips, moved.rates, float(rows["seconds"][0]), loop.size, error)


@experiment("exchange", "Does replica exchange between couplings make chains tunnel, for the same work?")
def run(settings: Settings, progress: Progress) -> Result:
    """Return crossings, round trips and errors of every way on every volume."""
    places = QUICK if settings.quick else PLACES
    rows: list[ResultRow] = []
    table: list[tuple[str, ...]] = [HEAD]
    for number, place in enumerate(places):
        progress(number, len(places), f"{place.repeats} x {place.couplings} chains of {shape(place)}, three ways")
        recipes = [recipe_of(place, way, i, settings.seed) for way in WAYS for i in range(place.repeats)]
        made = list(spread(recorded, recipes, here=settings.quick))
        peak = np.concatenate([np.hypot(m["polyakov_re"], m["polyakov_im"]) for m in made[: place.repeats]])
        low, high = peak.mean() - peak.std() / 2, peak.mean() + peak.std() / 2
        found = [seen(recipe, rows, low, high) for recipe, rows in zip(recipes, made, strict=True)]
        ways = {way: found[i * place.repeats : (i + 1) * place.repeats] for i, way in enumerate(WAYS)}
        for way, repeats in ways.items():
            figures = figures_of(repeats, ways[WAYS[0]])
            rows += [row_of(shape(place), way, name, figure, precision="f64") for name, figure in figures.items()]
            table.append((shape(place), way, *cells(repeats, figures)))
    return Result.of(rows, table, words("exchange.all", warmup=places[0].warmup, reach=REACH))


HEAD = (
    "lattice",
    "chains",
    "crossings / 1,000 updates",
    "crossings / CPU s",
    "round trips / CPU s",
    "swaps accepted",
    "error^2 x updates",
)


def shape(place: Place) -> str:
    """Return the lattice as in 8^3x2."""
    return f"{place.dims[0]}^3x{place.dims[3]}"


def figures_of(repeats: Sequence[Seen], at_peak: Sequence[Seen]) -> dict[str, Interval]:
    """Return every figure of a way with its 95 % interval, from the scatter of its repeats."""
    figures = {
        "crossings / 1,000 updates": mean_interval([1000 * s.crossings / s.updates for s in repeats]),
        "crossings / CPU s": mean_interval([s.crossings / s.seconds for s in repeats]),
        "round trips / CPU s": mean_interval([s.round_trips / s.seconds for s in repeats]),
    }
    # A chain that saw one phase may quote any error: only where every repeat found a peak is it compared.
    if all(s.error is not None for s in (*repeats, *at_peak)):
        own, other = ([(s.error or 0.0) ** 2 * s.updates for s in way] for way in (repeats, at_peak))
        figures["error^2 x updates"] = mean_interval([cost / float(np.mean(other)) for cost in own])
    return figures


def cells(repeats: Sequence[Seen], figures: dict[str, Interval]) -> Iterator[str]:
    """Give the cells of a row, in the order of the head."""
    rates = np.mean([s.rates for s in repeats], axis=0)
    swaps = f"{rates.min():.2f} .. {rates.max():.2f}" if rates.size else "-"
    located = sum(s.error is not None for s in repeats)
    for name in HEAD[2:]:
        if name == "swaps accepted":
            yield swaps
        elif name == "round trips / CPU s" and not rates.size:
            yield "-"
        elif name in figures:
            yield shown(figures[name], ".3g")
        else:
            yield f"peak found in {located} of {len(repeats)}"
