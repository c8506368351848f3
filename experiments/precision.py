"""Experiment precision: gains and losses of double-floats on a GPU, and on one whose doubles are slow.

Measured on a GPU, which it needs: seconds of a walk by every strategy (`native.cuda.precision`), how far its
links are from those in doubles after a trajectory, and how far from the start after the way back. Modelled, and marked
so: the same GPU with doubles at 1/32 and 1/64 of the rate of floats, as consumer GPUs have them, by counting
instructions. There doubles run at the full rate of their unit, which is the best case for `native`; double-floats take
the time they take here, and their conversions, which are work of that unit too.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from metalforge.core.errors import PlacementError
from metalforge.core.substrate import Substrate
from metalforge.native.cuda.engine import cuda_engine
from metalforge.native.cuda.grid import MEASURED, STEPS, CudaEngine, measured_choice
from metalforge.native.cuda.precision import SHARES, Fp64Choice
from metalforge.native.engine import Dims
from metalforge.reservoir.metrics import Interval, mean_interval
from metalforge.substrates import discover

from .protocol import Progress, Result, ResultRow, Settings, experiment, row_of, shown, words

REPEATS = 5
STRATEGIES = ("native", "hybrid", "concurrent")
RATIOS = (32, 64)
"""Rate of floats over that of doubles, of consumer GPUs."""
DOUBLES, FLOATS, CONVERSIONS = 1740, 25300, 182
"""Instructions of a link: a kick and move in doubles, the same in double-floats, and (once a walk) between the two.

Counted in the machine code for sm_90, the loop over planes three times."""
LINKS = 4 * int(np.prod(MEASURED))


class Accuracy(NamedTuple):
    """Of a trajectory: how far links and dH are from those in doubles, and links from the start on the way back."""

    links: float
    delta_h: float
    back: float


class StrategySeen(NamedTuple):
    """A GPU: its name, float instructions per second at most, walks measured again and again, and accuracies."""

    card: str
    floats_per_s: float
    walks: tuple[Fp64Choice, ...]
    accuracy: dict[str, Accuracy]


@experiment("precision", "Do double-floats make trajectories in double precision faster, and are they right?")
def run(settings: Settings, progress: Progress) -> Result:
    """Measure the first GPU of this machine."""
    repeats = 2 if settings.quick else REPEATS
    card = _card_here()
    engine: CudaEngine = cuda_engine(0)
    walks = []
    for n in range(repeats):
        progress(n, repeats + 1, f"walks by every strategy on {card.info.model}")
        walks.append(measured_choice(engine.card, "auto"))
    progress(repeats, repeats + 1, "trajectories there and back")
    share = _best_share(walks)
    engines = {name: cuda_engine(0, name, share if name == "concurrent" else None) for name in STRATEGIES}
    rate = float(card.info.properties.get("fp32_flops_per_s", 0)) / 2
    return report(StrategySeen(card.info.model, rate, tuple(walks), accuracies(engines, settings.seed)))


def _card_here() -> Substrate:
    for one in discover().substrates:
        if one.info.name == "cuda:0":
            return one
    raise PlacementError("the experiment measures a CUDA GPU, and none is here\nhint: metalforge doctor says why")


def _best_share(walks: list[Fp64Choice] | tuple[Fp64Choice, ...]) -> int:
    """Return the blocks of 64 in double-floats that are fastest where both kinds are at work."""
    shares = [share for share in walks[0].measured if 0 < share < SHARES]
    return min(shares, key=lambda share: min(walk.measured[share] for walk in walks))


def accuracies(engines: dict[str, CudaEngine], seed: int, dims: Dims = (8, 8, 8, 8)) -> dict[str, Accuracy]:
    """Return what each engine makes of one trajectory at beta = 5.7, there and back."""
    ends, found = {}, {}
    stages = np.array([[1.0, 0.025], *[[0.0, 0.05], [1.0, 0.05]] * 19, [0.0, 0.05], [1.0, 0.025]])
    for name, engine in engines.items():
        grid = engine.grid(dims, "f64")
        links, start, momenta = grid.new("links"), grid.new("links"), grid.new("momenta")
        grid.set_hot(links, seed, 0, 0)
        for n in range(20):
            grid.heatbath(links, 5.7, seed, 0, n + 1, 255)
        grid.reunitarise(links)
        grid.assign(start, links)
        grid.refresh_momenta(momenta, seed, 1, 1)
        energies = [5.7 * grid.action_energy(links, None) + grid.kinetic(momenta)]
        grid.evolve(links, momenta, 5.7, stages, None)
        energies.append(5.7 * grid.action_energy(links, None) + grid.kinetic(momenta))
        ends[name] = grid.download("links", links), energies[1] - energies[0]
        grid.upload("momenta", momenta, -grid.download("momenta", momenta))
        grid.evolve(links, momenta, 5.7, stages, None)
        there, native = ends[name], ends["native"]
        off = float(np.max(np.abs(there[0] - native[0])))
        found[name] = Accuracy(off, abs(there[1] - native[1]), grid.distance(links, start))
    return found


def report(seen: StrategySeen) -> Result:
    """Return the rows of what was seen and what follows for other GPUs."""
    rows: list[ResultRow] = []
    table: list[tuple[str, ...]] = [HEAD]
    share = _best_share(seen.walks)
    native = float(np.mean([walk.measured[0] for walk in seen.walks]))
    for name, blocks in zip(STRATEGIES, (0, SHARES, share), strict=True):
        took = mean_interval([1e3 * walk.measured[blocks] for walk in seen.walks])
        accuracy = seen.accuracy[name]
        rows.append(row_of(seen.card, name, "walk, ms", took, 1e3 * native, precision="f64"))
        figures = (f"{x:.1e}" for x in accuracy)
        table.append(
            (seen.card, name, f"{blocks}/{SHARES}", shown(took, ".3g"), _times(took, native), *figures, "measured")
        )
    hybrid = float(np.mean([walk.measured[SHARES] for walk in seen.walks]))
    for ratio in RATIOS if seen.floats_per_s else ():
        card = f"the same, doubles at 1/{ratio} of floats"
        model = modelled(hybrid, seen.floats_per_s, ratio)
        for name, seconds in zip(STRATEGIES, model, strict=True):
            took = Interval.around(1e3 * seconds)
            rows.append(row_of(card, name, "walk, ms, modelled", took, 1e3 * model[0], precision="f64"))
            bound = "at least " if name == "concurrent" else ""
            times = bound + _times(took, model[0])
            table.append((card, name, "", f"{bound}{took.value:.3g}", times, "", "", "", "modelled"))
    held = FLOATS * LINKS * STEPS / hybrid / seen.floats_per_s if seen.floats_per_s else float("nan")
    counts = {"doubles": DOUBLES, "floats": FLOATS, "held": held, "steps": STEPS, "share": share, "shares": SHARES}
    return Result.of(rows, table, words("precision.all", **counts), _checks(seen))


def modelled(hybrid: float, floats_per_s: float, ratio: float) -> tuple[float, float, float]:
    """Return seconds of a walk in doubles, in double-floats, and by both units at once if neither hinders the other."""
    doubles_per_s = floats_per_s / ratio
    native = LINKS * STEPS * DOUBLES / doubles_per_s
    pairs = hybrid + LINKS * CONVERSIONS / doubles_per_s
    return native, pairs, 1 / (1 / native + 1 / pairs)


def _times(took: Interval, native: float) -> str:
    return f"{took.value / (1e3 * native):.2f}"


def _checks(seen: StrategySeen) -> Iterator[tuple[str, str, bool]]:
    fastest = seen.walks[0]
    yield "auto takes the fastest", fastest.line, fastest.seconds[fastest.strategy] == min(fastest.seconds.values())
    for name, (links, delta_h, back) in seen.accuracy.items():
        yield f"{name}: links within 1e-11 of doubles", f"{links:.1e}", links < 1e-11
        yield f"{name}: dH within 1e-7", f"{delta_h:.1e}", delta_h < 1e-7
        yield f"{name}: leads back to 1e-10", f"{back:.1e}", back < 1e-10


HEAD = (
    "card",
    "strategy",
    "blocks in double-floats",
    f"{STEPS} kicks and moves on 16^4, ms",
    "times native",
    "links off",
    "dH off",
    "back to the start",
    "source",
)
