r"""Experiment plasma-map: atom-steps that active learning takes for a curve of D* and eta*, over an even grid's.

Repeating campaigns of molecular dynamics costs days, so they are repeated on *real segments*: trajectories at a few
couplings leave a pool of segments each (`plasma.trajectory`), and a visit of the surrogate draws segments from the pool
nearest to its coupling, with replacement, scaled by what the pools' own smooth curves change from there to here. Noise,
and how it differs from coupling to coupling, is then the engine's; the truth is the curve through the whole pools.

Every arm is the campaign's own steerer, told what the campaign tells it, a visit at a time; a new coupling costs its
warm-up, a segment of a coupling what its time step makes it cost. After each visit the campaign's own curve is held
against the truth:

    error = max over D*, eta* of the rms over ln Gamma of (curve - truth),

the mean square over repetitions. The figure is the cost at which an arm reaches an error over that of the even grid:
the better of two grids, since which is better is not known beforehand.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.campaign.physics.smooth import SmoothCurve
from metalforge.campaign.physics.transport import SegmentRows, curve_of, observed_transport, transport_of
from metalforge.campaign.steerers import CurveSteerer, Uniform
from metalforge.campaign.theories.plasma import Plasma, gamma_at
from metalforge.core.steering import Steerer
from metalforge.native.cpu_engine import cpu_engine
from metalforge.plasma.trajectory import TRANSPORT, SegmentWarmUp, TrajectoryRun
from metalforge.reservoir.metrics import Interval

from .cache import cached_arrays
from .protocol import Progress, Result, ResultRow, Settings, experiment, row_of, shown, spread, words

Floats = NDArray[np.float64]
GOAL = 0.6
"""Part of the even grid's atom-steps that is asked for."""


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
    grids: tuple[int, ...] = (5, 9)
    repeats: int = 40
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
    kappa=4.0, particles=104, gamma_min=200.0, gamma_max=1500.0, segment=20.0, pools=3, pool=8, visits=8, repeats=3
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


class SegmentPools:
    """Segments of some couplings, from which those of any coupling are drawn."""

    def __init__(self, plan: MapPlan, columns: Sequence[dict[str, Floats]]) -> None:
        self.plan, self.columns = plan, columns
        self._low, self._high = plan.plasma.low, plan.plasma.high
        whole = [self._rows(i, plan.places[i], slice(None), "pool") for i in range(plan.pools)]
        found = [point for rows in whole if (point := transport_of([rows])) is not None]
        self.places = np.array([point.abscissa for point in found])
        x = (self.places - self._low) / (self._high - self._low)
        # Pools are long: their curve passes through them, and is the truth by definition.
        exact = np.full(len(found), 1e-3)
        self._diffusion = SmoothCurve(x, np.log([p.diffusion for p in found]), exact)
        self._viscosity = SmoothCurve(x, np.log([p.viscosity for p in found]), exact)

    def truth(self, at: Floats) -> tuple[Floats, Floats]:
        """Return ln D* and ln eta*."""
        x = (at - self._low) / (self._high - self._low)
        return self._diffusion.at(x)[0], self._viscosity.at(x)[0]

    def _rows(self, pool: int, at: float, which: slice | NDArray[np.int64], name: str) -> SegmentRows:
        plan, plasma = self.plan, self.plan.plasma
        spec = plasma.trajectory((plan.particles,), float(at), seed=1, stream=0, start="random")
        time = plasma.update_time
        columns = {key: values[which] for key, values in self.columns[pool].items()}
        count = len(columns["kinetic"])
        steps = time / spec.step_time * spec.particles
        return SegmentRows(name, float(at), spec, time, columns, steps * (count + plan.warmup))

    def draw(self, at: float, count: int, name: str, rng: np.random.Generator) -> SegmentRows:
        """Return so many segments of a trajectory at a coupling."""
        pool = int(np.abs(self.places - at).argmin())
        drawn = rng.integers(len(self.columns[pool]["kinetic"]), size=count)
        rows = self._rows(pool, at, drawn, name)
        here, there = self.truth(np.array([at])), self.truth(self.places[pool : pool + 1])
        colder = float(np.exp(self.places[pool] - at))
        scale = {"temperature": colder, "kinetic": colder}
        scale |= dict.fromkeys(TRANSPORT[1:], float(np.exp(here[0] - there[0])[0]))
        # S(0) is eta kT: both change.
        stress = float(np.exp(here[1] - there[1])[0]) * colder
        columns = {
            key: values * (stress if key.startswith("stress_") else scale.get(key, 1.0))
            for key, values in rows.columns.items()
        }
        return rows._replace(columns=columns)


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
    costs, squares = [], []
    for visit in range(plan.visits):
        place = steerer.ask(1)[0].beta
        near = next((known for known in chains if abs(known - place) < 0.01 * (plasma.high - plasma.low)), place)
        new = pools.draw(near, plan.visit, f"c{visit}", rng)
        if near in chains:
            before = chains[near]
            joined = {name: np.concatenate([values, new.columns[name]]) for name, values in before.columns.items()}
            per_segment = new.cost / (plan.visit + plan.warmup)
            new = before._replace(columns=joined, cost=before.cost + plan.visit * per_segment)
        chains[near] = new
        if (seen := observed_transport(new)) is not None:
            steerer.tell([seen])
        points = [point for rows in chains.values() if (point := transport_of([rows])) is not None]
        curve = curve_of(sorted(points, key=lambda p: p.at), plasma.low, plasma.high)
        if curve is not None:
            off = np.array(curve.log_diffusion) - truth[0], np.array(curve.log_viscosity) - truth[1]
            costs.append(sum(rows.cost for rows in chains.values()))
            squares.append([float(np.mean(one**2)) for one in off])
    return CampaignTrace(np.array(costs), np.array(squares))


def steerer_named(plan: MapPlan, arm: str) -> Steerer:
    """Return the steerer of an arm: `curve`, or `grid N`."""
    low, high = plan.plasma.low, plan.plasma.high
    if arm == "curve":
        return CurveSteerer(low, high, initial=plan.initial, fresh_cost=1 + plan.warmup / plan.visit)
    return Uniform(low, high, points=int(arm.split()[1]))


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
    """Run campaigns on real segments, steered and on even grids."""
    plan = QUICK if settings.quick else MapPlan()
    pools = pools_of(plan, progress)
    progress(1, 2, f"{plan.repeats} campaigns of every arm")
    arms = ("curve", *(f"grid {points}" for points in plan.grids))
    tasks = [_Repeat(pools, arm, (settings.seed, k)) for arm in arms for k in range(plan.repeats)]
    traces = list(spread(_campaign, tasks, here=settings.quick, chunk=4))
    by_arm = {arm: traces[i * plan.repeats : (i + 1) * plan.repeats] for i, arm in enumerate(arms)}
    costs = np.array([min(t.cost[-1] for t in traces)])
    ends = {arm: float(error_at(found, costs)[0]) for arm, found in by_arm.items()}
    best = min((arm for arm in arms if arm != "curve"), key=lambda arm: ends[arm])
    # The error that the better grid has at the end, which every arm should reach; and one on the way there.
    levels = {"final error": 1.05 * ends[best], "twice the final error": 2 * ends[best]}
    rng, rows, lines = np.random.default_rng(settings.seed), [], []
    for name, level in levels.items():
        ratio = cost_ratio(by_arm["curve"], by_arm[best], level)
        drawn = [cost_ratio(_resampled(by_arm["curve"], rng), _resampled(by_arm[best], rng), level) for _ in range(200)]
        low, high = np.quantile(drawn, [0.025, 0.975])
        figure = Interval(ratio, float(low), float(high))
        rows.append(row_of(f"kappa {plan.kappa:g}, {name}", f"curve over {best}", "atom-steps", figure, GOAL))
        lines.append((f"{name}, {level:.2%}", best, shown(figure, ".2f")))
    head = ("error of the curve", "beside", "atom-steps of active learning over the grid's")
    table = (head, *lines, *((f"error at {costs[0]:.3g} atom-steps", arm, f"{ends[arm]:.2%}") for arm in arms))
    said = words("plasma-map.setting", plan=plan, gamma=[f"{gamma_at(float(at)):.3g}" for at in plan.places])
    asked = f"at most {GOAL:g} of the even grid's atom-steps"
    return Result.of(rows, table, said, [(asked, shown(_figure(rows), ".2f"), rows[0].value <= GOAL)])


def _figure(rows: Sequence[ResultRow]) -> Interval:
    return Interval(rows[0].value, rows[0].low, rows[0].high)


def _resampled(traces: Sequence[CampaignTrace], rng: np.random.Generator) -> list[CampaignTrace]:
    picked: Iterable[int] = rng.integers(len(traces), size=len(traces))
    return [traces[i] for i in picked]
