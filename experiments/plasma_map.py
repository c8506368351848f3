r"""Experiment plasma-map: atom-steps that active learning takes for a curve of D* and eta*, over an even grid's.

Repeating campaigns of molecular dynamics costs days, so they are repeated on segments that are *drawn*, from laws that
real ones were measured for: trajectories at a few couplings (`plasma.trajectory`) leave a pool of segments each, and
of each pool its smooth stress spectrum S (`plasma.spectrum`), its D_N, and how temperature and D_N scatter. Logarithms
of these are parabolas in ln Gamma between pools, so that no noise of a pool is taken for structure of the curve. The
periodogram of a segment is then S times the known noise of five components (a gamma variable of shape 5, or 5/2 at zero
frequency), which is also what estimators assume; how far real segments scatter so is said with the result. Drawing
real segments again and again instead would freeze the noise of a pool into its spectrum, and estimators take that for
structure. The truth is what the estimator gives of a spectrum without noise.

Every arm is a steerer, told what the campaign tells it, a visit at a time; a new coupling costs its warm-up, a segment
of a coupling what its time step makes it cost. After each visit the campaign's own curve is held against the truth:

    error = max over D*, eta* of the rms over ln Gamma of (curve - truth),

the mean square over repetitions. The figure is the cost at which active learning reaches an error over that of an even
grid: the best of several, since which is best is not known beforehand. Grids are of two kinds: `grid N`, the middles of
N cells, which is the campaign's steerer `uniform`, and `ends N`, N couplings of which two are the ends of the range.

Beside it stands what the best of all designs would take. The laws are parabolas p(x) in ln Gamma; work w_i at x_i,
where a unit of it leaves a variance s_i^2, leaves the mean variance of a parabola through all

    V(w) = tr(M^-1 B),   M = sum_i w_i p(x_i) p(x_i)^T / s_i^2,   B = mean over x of p(x) p(x)^T,

which falls as 1 / sum w, so that V of the best shares of one unit of work over V of a grid's is the least part of its
work for the same error (an I-optimal design; found by multiplying shares by what each lowers V).
"""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.campaign.steerers import CurveSteerer, Uniform
from metalforge.core.steering import HistorySteerer, Steerer, Suggestion
from metalforge.native.cpu_engine import cpu_engine
from metalforge.plasma.campaign.theory import Plasma, gamma_at
from metalforge.plasma.campaign.transport import (
    PointTransport,
    SegmentRows,
    curve_of,
    told_of,
    transport_of,
)
from metalforge.plasma.observables import STRESSES
from metalforge.plasma.spectrum import smooth_spectrum
from metalforge.plasma.trajectory import TRANSPORT, SegmentWarmUp, TrajectoryRun
from metalforge.plasma.transport import TransportSegment, transport
from metalforge.reservoir.metrics import Interval

from .cache import cached_arrays
from .protocol import Progress, Result, Settings, experiment, row_of, shown, spread, words

Floats = NDArray[np.float64]
GOAL = 0.6
"""Part of the even grid's atom-steps that is asked for."""
COMPONENTS = float(len(STRESSES))
SMOOTH = 2
"""Degree in ln Gamma of what laws are between pools: by what these differ beyond it is the noise of their segments."""
SEGMENTS, DRAWS, ROUNDS = 60, 40, 400
"""Of a point whose noise is looked at, how many of them; and how often shares of the best design are made better."""
WITHOUT_NOISE = 10**6
"""Segments that a spectrum without noise is said to be of."""


class MapPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The plasma, its pools, and how campaigns on them go; visits and warm-up in segments."""

    kappa: float = 3.0
    particles: int = 170
    gamma_min: float = 80.0
    gamma_max: float = 1000.0
    segment: float = 0.0
    pools: int = 6
    pool: int = 24
    warmup: int = 1
    visit: int = 6
    visits: int = 30
    initial: int = 5
    grids: tuple[tuple[Literal["grid", "ends"], int], ...] = (
        ("grid", 5),
        ("grid", 9),
        ("grid", 15),
        ("ends", 5),
        ("ends", 9),
    )
    repeats: int = 72
    seed: int = 1

    @property
    def plasma(self) -> Plasma:
        """The physics, as a campaign has it."""
        return Plasma(
            kappa=self.kappa,
            particles=(self.particles,),
            gamma_min=self.gamma_min,
            gamma_max=self.gamma_max,
            segment=self.segment,
        )

    @property
    def places(self) -> Floats:
        """Ln Gamma of the pools."""
        return np.linspace(self.plasma.low, self.plasma.high, self.pools)


QUICK = MapPlan(
    kappa=4.0, particles=104, gamma_min=200.0, gamma_max=1500.0, segment=20.0, pools=3, pool=8, visits=8, repeats=3,
    grids=(("grid", 5), ("ends", 5)),
)  # fmt: skip


class _PoolTask(NamedTuple):
    plan: MapPlan
    number: int


def _pool(task: _PoolTask) -> dict[str, Floats]:
    """Return the segments of one coupling, by column."""
    plan, number = task
    plasma = plan.plasma
    spec = plasma.trajectory(
        (plan.particles,), float(plan.places[number]), seed=plan.seed, stream=number, start="random"
    )
    run = TrajectoryRun(
        spec, plasma.update_time, SegmentWarmUp(total=max(plan.warmup, 1)), engine=cpu_engine(threads=1)
    )
    while run.measured < plan.pool:
        run.step()
    warm = run.log.phases.count("warmup")
    return {name: np.array(column[warm:]) for name, column in run.log.columns.items()}


class SegmentLaw(NamedTuple):
    """What segments of one coupling are drawn from: the stress spectrum, D_N by both ways, and relative scatter."""

    spectrum: Floats
    diffusion: Floats
    scatter: Floats
    """Of temperature, and of D_N."""


class SegmentPools:
    """Laws of segments at some couplings, from which segments of any coupling are drawn."""

    def __init__(self, plan: MapPlan, columns: Sequence[dict[str, Floats]]) -> None:
        self.plan = plan
        powers = [np.array([c[n] for n in c if n.startswith("stress_")]).T for c in columns]
        self.places = np.array([-np.log(c["temperature"].mean()) for c in columns])
        spectra = [smooth_spectrum(p.mean(axis=0), COMPONENTS * len(p)) for p in powers]
        diffusion = [[c[name].mean() for name in TRANSPORT[1:]] for c in columns]
        scatter = [[c[name].std(ddof=1) / c[name].mean() for name in TRANSPORT[:2]] for c in columns]
        self._laws = [
            np.polynomial.polynomial.polyfit(self.places, np.log(np.array(values)), min(SMOOTH, len(columns) - 1))
            for values in (spectra, diffusion, scatter)
        ]
        self.noise = float(
            np.mean([COMPONENTS * p[:, 1:].var(axis=0, ddof=1) / p[:, 1:].mean(axis=0) ** 2 for p in powers])
        )
        """Variance of the periodograms of real segments over that of those that are drawn."""

    def law(self, at: float) -> SegmentLaw:
        """Return the law at a coupling, on parabolas through those of the pools in the logarithms."""
        return SegmentLaw(*(np.exp(np.polynomial.polynomial.polyval(at, law)) for law in self._laws))

    def truth(self, at: Floats) -> tuple[Floats, Floats]:
        """Return ln D* and ln eta*: what segments without noise give, however many."""
        plan = self.plan
        found = []
        for place in at:
            law = self.law(float(place))
            segment = TransportSegment(
                time=plan.plasma.update_time,
                segments=WITHOUT_NOISE,
                temperature=float(np.exp(-place)),
                diffusion_msd=float(law.diffusion[0]),
                diffusion_vacf=float(law.diffusion[1]),
                stress_power=tuple(law.spectrum.tolist()),
            )
            spec = plan.plasma.trajectory((plan.particles,), float(place), seed=1, stream=0, start="random")
            moved = transport(spec, [[segment]])
            found.append((np.log(moved.diffusion_infinite.mean), np.log(moved.viscosity.mean)))
        log_d, log_eta = np.array(found).T
        return log_d, log_eta

    def draw(self, at: float, count: int, name: str, rng: np.random.Generator) -> SegmentRows:
        """Return so many segments of a trajectory at a coupling."""
        plan, plasma, law = self.plan, self.plan.plasma, self.law(at)
        shape = np.full(len(law.spectrum), COMPONENTS)
        shape[0] /= 2
        power = law.spectrum * rng.gamma(shape, 1 / shape, (count, len(shape)))
        temperature, moved = np.exp(law.scatter * rng.normal(size=(count, 2))).T
        spec = plasma.trajectory((plan.particles,), at, seed=1, stream=0, start="random")
        columns = {f"stress_{bin}": column for bin, column in enumerate(power.T)}
        columns |= {"temperature": np.exp(-at) * temperature, "phi": np.ones(count)}
        columns |= {n: d * moved for n, d in zip(TRANSPORT[1:], law.diffusion, strict=True)}
        columns["kinetic"] = 1.5 * (plan.particles - 1) * columns["temperature"]
        steps = plasma.update_time / spec.step_time * spec.particles
        return SegmentRows(name, at, spec, plasma.update_time, columns, steps * (count + plan.warmup))


def pools_of(plan: MapPlan, progress: Progress) -> SegmentPools:
    """Return the pools, from the cache where they were made before."""

    def make() -> dict[str, Floats]:
        progress(0, 2, f"{plan.pools} trajectories of {plan.pool} segments")
        made = spread(_pool, [_PoolTask(plan, i) for i in range(plan.pools)], here=plan.pool < 10)
        return {f"{i}.{name}": column for i, pool in enumerate(made) for name, column in pool.items()}

    recipe = msgspec.structs.replace(plan, visit=1, visits=1, repeats=1, grids=(), initial=1)
    arrays = cached_arrays("plasma-map", recipe, make)
    return SegmentPools(plan, [_part(arrays, i) for i in range(plan.pools)])


def _part(arrays: dict[str, Floats], number: int) -> dict[str, Floats]:
    prefix = f"{number}."
    return {name.removeprefix(prefix): column for name, column in arrays.items() if name.startswith(prefix)}


class CampaignTrace(NamedTuple):
    """Atom-steps so far and the mean squares of the curve's errors, of D* and of eta*, after each visit."""

    cost: Floats
    squares: Floats


def campaign_on(pools: SegmentPools, steerer: Steerer, seed: Sequence[int]) -> CampaignTrace:
    """Run a campaign of visits on pools: who was told what the campaign tells its steerers asks for the next."""
    plan, plasma, rng = pools.plan, pools.plan.plasma, np.random.default_rng(seed)
    at = np.linspace(plasma.low, plasma.high, 61)
    truth = pools.truth(at)
    chains: dict[float, SegmentRows] = {}
    points: dict[float, PointTransport] = {}
    costs, squares = [], []
    for visit in range(plan.visits):
        place = steerer.ask(1)[0].coordinate
        near = next((known for known in chains if abs(known - place) < 0.01 * (plasma.high - plasma.low)), place)
        new = pools.draw(near, plan.visit, f"c{visit}", rng)
        if near in chains:
            before = chains[near]
            joined = {name: np.concatenate([values, new.columns[name]]) for name, values in before.columns.items()}
            per_segment = new.cost / (plan.visit + plan.warmup)
            new = before._replace(columns=joined, cost=before.cost + plan.visit * per_segment)
        chains[near] = new
        if (point := transport_of([new])) is not None:
            steerer.tell([told_of(point, new.chain)])
            points[near] = point
        curve = curve_of([points[known] for known in sorted(points)], plasma.low, plasma.high)
        if curve is not None:
            off = np.array(curve.log_diffusion) - truth[0], np.array(curve.log_viscosity) - truth[1]
            costs.append(sum(rows.cost for rows in chains.values()))
            squares.append([float(np.mean(one**2)) for one in off])
    return CampaignTrace(np.array(costs), np.array(squares))


class EvenWithEnds(HistorySteerer):
    """Equal work at so many couplings, evenly from one end of the range to the other."""

    name = "even-with-ends"

    def __init__(self, beta_min: float, beta_max: float, *, points: int) -> None:
        super().__init__(beta_min, beta_max)
        self.places = np.linspace(beta_min, beta_max, points).tolist()

    def ask(self, n: int = 1, pending: Sequence[float] = ()) -> list[Suggestion]:
        """Return the places with the least work."""
        spent = {one.coordinate: one.cost for one in self.history.observations}
        least = sorted(self.places, key=lambda place: spent.get(place, 0.0))
        return [Suggestion(coordinate=place, reason="an even grid with its ends") for place in least[:n]]


def steerer_named(plan: MapPlan, arm: str) -> Steerer:
    """Return the steerer of an arm: `curve`, `grid N` or `ends N`."""
    low, high = plan.plasma.low, plan.plasma.high
    if arm == "curve":
        return CurveSteerer(low, high, initial=plan.initial, fresh_cost=1 + plan.warmup / plan.visit)
    kind, points = arm.split()
    return (Uniform if kind == "grid" else EvenWithEnds)(low, high, points=int(points))


def noise_of(pools: SegmentPools, at: Floats, rng: np.random.Generator) -> Floats:
    """Return the variance of ln eta* that one segment leaves at each place: a parabola through that of real points."""
    places = pools.plan.places
    left = []
    for place in places:
        points = [transport_of([pools.draw(float(place), SEGMENTS, "c0", rng)]) for _ in range(DRAWS)]
        left.append(SEGMENTS * np.var([np.log(point.viscosity) for point in points if point is not None], ddof=1))
    fitted = np.polynomial.Polynomial.fit(places, np.log(left), SMOOTH)
    return np.asarray(np.exp(fitted(at)), np.float64)


def least_part(noise: Floats, at: Floats, grid: Floats) -> float:
    """Return the part of an even grid's work that the best design needs for a parabola, of all shares over `at`."""
    x = 2 * (at - at[0]) / (at[-1] - at[0]) - 1
    powers = np.vander(x, SMOOTH + 1, increasing=True)
    wanted = powers.T @ powers / len(x)

    def inverse(shares: Floats) -> Floats:
        return np.asarray(np.linalg.inv(powers.T @ (powers * (shares / noise)[:, None])), np.float64)

    def variance(shares: Floats) -> float:
        return float(np.trace(inverse(shares) @ wanted))

    best = np.full(len(x), 1 / len(x))
    for _ in range(ROUNDS):
        inner = inverse(best)
        lowers = np.einsum("ij,jk,ik->i", powers, inner @ wanted @ inner, powers) / noise
        best = best * np.sqrt(lowers)
        best /= best.sum()
    even = np.bincount(np.abs(at[:, None] - grid[None, :]).argmin(axis=0), minlength=len(x)) / len(grid)
    return variance(best) / variance(even)


def _places(plan: MapPlan, arm: str) -> list[float]:
    """Return the couplings of an even grid."""
    kind, points = arm.split()
    low, high, count = plan.plasma.low, plan.plasma.high, int(points)
    if kind == "ends":
        return [float(at) for at in np.linspace(low, high, count)]
    return [low + (i + 0.5) / count * (high - low) for i in range(count)]


class _Repeat(NamedTuple):
    pools: SegmentPools
    arm: str
    seed: tuple[int, ...]


def _campaign(task: _Repeat) -> CampaignTrace:
    return campaign_on(task.pools, steerer_named(task.pools.plan, task.arm), task.seed)


def error_at(traces: Sequence[CampaignTrace], costs: Floats) -> Floats:
    """Return the error at some costs: the larger rms of the two over repetitions, between visits in the logarithms."""
    squares = np.array([
        [np.exp(np.interp(np.log(costs), np.log(t.cost), np.log(t.squares[:, q]))) for q in (0, 1)] for t in traces
    ])  # fmt: skip
    return np.asarray(np.sqrt(squares.mean(axis=0).max(axis=0)), np.float64)


def cost_ratio(arm: Sequence[CampaignTrace], grid: Sequence[CampaignTrace], level: float) -> float:
    """Return the cost at which an arm is below an error for good, over that of the grid."""
    return _cost_of(arm, level) / _cost_of(grid, level)


def _cost_of(traces: Sequence[CampaignTrace], level: float) -> float:
    first = max(float(t.cost[0]) for t in traces)
    last = min(float(t.cost[-1]) for t in traces)
    costs = np.geomspace(first, last, 200)
    above = np.flatnonzero(error_at(traces, costs) > level)
    return float(costs[0] if not above.size else costs[min(above[-1] + 1, len(costs) - 1)])


@experiment("plasma-map", "How many atom-steps does active learning take for a transport curve, over an even grid?")
def run(settings: Settings, progress: Progress) -> Result:
    """Run campaigns on segments that are drawn, steered and on even grids."""
    plan = QUICK if settings.quick else MapPlan()
    pools = pools_of(plan, progress)
    progress(1, 2, f"{plan.repeats} campaigns of every arm")
    arms = ("curve", *(f"{kind} {points}" for kind, points in plan.grids))
    tasks = [_Repeat(pools, arm, (settings.seed, k)) for arm in arms for k in range(plan.repeats)]
    traces = list(spread(_campaign, tasks, here=settings.quick, chunk=4))
    by_arm = {arm: traces[i * plan.repeats : (i + 1) * plan.repeats] for i, arm in enumerate(arms)}
    costs = np.array([min(t.cost[-1] for t in traces)])
    ends = {arm: float(error_at(found, costs)[0]) for arm, found in by_arm.items()}
    rng, rows, lines = np.random.default_rng(settings.seed), [], []
    at = np.linspace(plan.plasma.low, plan.plasma.high, 61)
    noise = noise_of(pools, at, np.random.default_rng(settings.seed))
    for beside in ("any even grid", "grid", "ends"):
        grids = [arm for arm in arms[1:] if beside == "any even grid" or arm.startswith(beside)]
        best = min(grids, key=lambda arm: ends[arm])
        # The error that the best grid has at the end, which every arm should reach; and one on the way there.
        for name, level in (("final error", 1.05 * ends[best]), ("1.5 of it", 1.5 * ends[best])):
            figure = _ratio(by_arm["curve"], by_arm[best], level, rng)
            rows.append(
                row_of(f"kappa {plan.kappa:g}, {beside}, {name}", f"curve over {best}", "atom-steps", figure, GOAL)
            )
            lines.append((f"{name}, {level:.2%}", f"{best}, the best of {beside}", shown(figure, ".2f")))
        least = least_part(noise, at, np.array(_places(plan, best)))
        rows.append(
            row_of(
                f"kappa {plan.kappa:g}, {beside}",
                f"best design over {best}",
                "atom-steps",
                Interval(least, least, least),
            )
        )
        lines.append(("any, of a parabola", f"{best}, by the best of all designs", f"{least:.2f}"))
    head = ("error of the curve", "beside", "atom-steps of active learning over the grid's")
    table = (head, *lines, *((f"error at {costs[0]:.3g} atom-steps", arm, f"{ends[arm]:.2%}") for arm in arms))
    gammas = ", ".join(f"{gamma_at(float(at)):.4g}" for at in plan.places)
    said = words("plasma-map.setting", plan=plan, gamma=gammas, noise=pools.noise)
    first = Interval(rows[0].value, rows[0].low, rows[0].high)
    asked = f"at most {GOAL:g} of the atom-steps of the best even grid"
    return Result.of(rows, table, said, [(asked, shown(first, ".2f"), first.value <= GOAL)])


def _ratio(
    arm: Sequence[CampaignTrace], grid: Sequence[CampaignTrace], level: float, rng: np.random.Generator
) -> Interval:
    drawn = [cost_ratio(_resampled(arm, rng), _resampled(grid, rng), level) for _ in range(200)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Interval(cost_ratio(arm, grid, level), float(low), float(high))


def _resampled(traces: Sequence[CampaignTrace], rng: np.random.Generator) -> list[CampaignTrace]:
    picked: Iterable[int] = rng.integers(len(traces), size=len(traces))
    return [traces[i] for i in picked]
