"""Adaptation on the device after a change of the world: how many steps and modelled seconds, by which way of learning.

A reservoir of tanh units on the emulated NPU follows a NARMA system of order 10; its readout was fitted to that system.
Then the system gets other coefficients and its sensor the other sign. Four ways to learn that are compared with doing
nothing and with moving only the bias, on a held-out series of the new world, for several seeds; each device profile has
the push schedule that `plan_updates` finds for it. A drift monitor, its threshold chosen on stationary series, says how
soon one would know.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from metalforge.hybrid.learning.drift import DriftMonitor, choose_threshold, false_alarms
from metalforge.hybrid.learning.evolution import Evolution, StreamWindow
from metalforge.hybrid.learning.network import DeviceNetwork, Master
from metalforge.hybrid.learning.rules import GradientStep, RecursiveLeastSquares, RidgeRefit, Rules
from metalforge.hybrid.learning.schedule import plan_updates
from metalforge.hybrid.learning.trainer import OnlineTrainer
from metalforge.reservoir.datasets import narma
from metalforge.reservoir.engine import Engine
from metalforge.reservoir.generate import make_esn
from metalforge.reservoir.metrics import Interval, mean_interval, nrmse, wilson
from metalforge.reservoir.readout import ridge
from metalforge.reservoir.weights import EsnWeights
from metalforge.substrates.npu.emulator import EmulatedDevice

from .protocol import Check, Progress, Result, ResultRow, Settings, experiment, row_of, shown, words

Doubles = NDArray[np.float64]
BEFORE, AFTER = (0.3, 0.05, 1.5, 0.1), (0.2, 0.04, 1.0, 0.25)
"""Coefficients of the system: the literature's, and others that keep it stable. The sensor turns round with them."""
PROFILES = ("akd1000-published", "akd1000-claimed")
GOAL = 1.5
"""Adapted is who errs at most so many times as a readout fitted to a long series of the new system."""
WASHOUT = 50
RIDGE = 1e-5
PRECISION = "W8A8"
"""Of the reservoir and of the readout."""
HORIZON = 500
"""Rows of a watched run."""
FALSE_ALARM = 0.05
"""Share of stationary runs that may give an alarm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Size:
    units: int
    seeds: int
    before: int
    steps: int
    check: int
    judge: int
    watched: int
    """Stationary runs for the threshold, and as many to test it."""


FULL = _Size(units=100, seeds=6, before=1500, steps=800, check=20, judge=1000, watched=199)
QUICK = _Size(units=24, seeds=3, before=300, steps=100, check=20, judge=250, watched=19)


class _Point(NamedTuple):
    """The held-out error and what the device had done by then."""

    step: int
    error: float
    device_s: float
    pushes: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _World:
    """One seed: a trained network, the stream after the change, and the judge of readouts."""

    weights: EsnWeights
    calibration: Doubles
    u: Doubles
    y: Doubles
    features: Doubles
    targets: Doubles
    oracle: float
    seed: int

    def error(self, master: Master) -> float:
        """Return the NRMSE of a readout on the held-out series of the new system."""
        return nrmse(self.targets, master(self.features))

    def network(self, profile: str) -> DeviceNetwork:
        """Return the trained network on a fresh device."""
        device = EmulatedDevice(profile)
        return DeviceNetwork(self.weights, device, precision=PRECISION, readout=PRECISION, calibration=self.calibration)


def _series(n: int, seed: int, coefficients: tuple[float, float, float, float]) -> tuple[Doubles, Doubles]:
    u, y = narma(n, seed=seed, coefficients=coefficients)
    return (4 if coefficients == BEFORE else -4) * (u - 0.25), y


def _world(seed: int, size: _Size) -> _World:
    streams = iter(np.random.SeedSequence([seed, 10]).generate_state(4).tolist())
    weights = make_esn(
        size.units, 1, seed=next(streams), connectivity=1.0, input_scaling=0.25, bias_scaling=0.2
    ).with_readout(np.zeros((1, size.units)))
    old_u, old_y = _series(size.before, next(streams), BEFORE)
    new_u, new_y = _series(size.steps + size.judge, next(streams), AFTER)
    device = EmulatedDevice()
    network = DeviceNetwork(weights, device, precision=PRECISION, readout=PRECISION, calibration=old_u)

    def seen(u: Doubles) -> Doubles:
        network.reset()
        return np.stack([network.advance(row) for row in u])[WASHOUT:]

    fitted = ridge(seen(old_u), old_y[WASHOUT:], RIDGE)
    judged_u, judged_y = _series(size.judge, next(streams), AFTER)
    best = ridge(seen(new_u), new_y[WASHOUT:], RIDGE)
    features, targets = seen(judged_u), judged_y[WASHOUT:]
    return _World(
        weights=weights.with_readout(fitted.w_out, fitted.out_bias),
        calibration=old_u,
        u=new_u[: size.steps],
        y=new_y[: size.steps],
        features=features,
        targets=targets,
        oracle=nrmse(targets, best(features)),
        seed=seed,
    )


Way = Callable[[DeviceNetwork, str, int], Callable[[Doubles, Doubles], object]]
"""A way to adapt: what is done with each row of the stream, for a network on a profile's device and a seed."""


def _bias_only(network: DeviceNetwork, profile: str, seed: int) -> Callable[[Doubles, Doubles], None]:
    """The mean error of the last rows goes into the bias, on the host: nothing is pushed."""

    def step(u: Doubles, y: Doubles) -> None:
        output = network.forward(u).output
        w_out, out_bias = network.master()
        network.push(w_out, out_bias + 0.05 * (y - output))

    return step


def _by(make: Callable[[int], Rules]) -> Way:
    def way(network: DeviceNetwork, profile: str, seed: int) -> Callable[[Doubles, Doubles], object]:
        plan = plan_updates(profile, network)
        return OnlineTrainer(network, make(plan.every), schedule=plan.schedule()).step

    return way


def _evolution(network: DeviceNetwork, profile: str, seed: int) -> Callable[[Doubles, Doubles], None]:
    """One generation of four children a row, on the last 64 rows."""
    evolution, stream = Evolution(network, seed=seed, children=4), StreamWindow(network, 64)

    def step(u: Doubles, y: Doubles) -> None:
        stream.take(u, y)
        if len(stream) >= 16:
            evolution.generation(stream.window())

    return step


WAYS: dict[str, Way] = {
    "none": lambda network, profile, seed: lambda u, y: network.forward(u),
    "bias only": _bias_only,
    "gradient": _by(lambda every: GradientStep(rate=0.25, normalised=True)),
    "least squares": _by(lambda every: RecursiveLeastSquares(alpha=1e-3, forgetting=0.998)),
    "refit": _by(lambda every: RidgeRefit(window=400, every=max(20, every), least=40, ridge=1e-3)),
    "evolution": _evolution,
}
BASELINES = ("none", "bias only")


def _trace(way: Way, world: _World, profile: str, size: _Size) -> list[_Point]:
    with world.network(profile) as network:
        before = network.device.statistics()
        points, learn = [], way(network, profile, world.seed)
        for step, (u, y) in enumerate(zip(world.u, world.y, strict=True), start=1):
            learn(u, y)
            if step % size.check == 0:
                now = network.device.statistics()
                assert now.busy is not None
                assert before.busy is not None
                held = Master(network.readout.real(), network.master().out_bias)
                spent = (now.busy - before.busy).value
                points.append(_Point(step, world.error(held), spent, now.weight_updates - before.weight_updates))
    return points


class _Figures(NamedTuple):
    """One way under one profile, over the seeds."""

    error: Interval
    steps: Interval
    seconds: Interval
    reached: int
    pushes: float


def _figures(traces: list[list[_Point]], goals: list[float]) -> _Figures:
    """Return means with intervals; who never arrives counts with all steps and seconds: at least so many."""
    arrived = [next((p for p in trace if p.error <= goal), None) for trace, goal in zip(traces, goals, strict=True)]
    ends = [found or trace[-1] for found, trace in zip(arrived, traces, strict=True)]
    return _Figures(
        error=mean_interval([trace[-1].error for trace in traces]),
        steps=mean_interval([float(end.step) for end in ends]),
        seconds=mean_interval([end.device_s for end in ends]),
        reached=sum(found is not None for found in arrived),
        pushes=float(np.mean([end.pushes for end in ends])),
    )


def _drift(size: _Size, seed: int) -> tuple[list[ResultRow], list[str]]:
    """Return rows and words on a monitor of a float readout's errors: false alarms, changes missed or seen late."""
    root = np.random.SeedSequence([seed, 11])
    seeds = iter(root.generate_state(3 * size.watched + 2).tolist())
    weights = make_esn(size.units, 1, seed=next(seeds), connectivity=1.0, input_scaling=0.25, bias_scaling=0.2)
    engine = Engine(weights)
    u, y = _series(size.before, next(seeds), BEFORE)
    readout = ridge(engine.run(u)[WASHOUT:], y[WASHOUT:], RIDGE)

    def errors(n: int, own: int, coefficients: tuple[float, float, float, float]) -> Doubles:
        u, y = _series(n + WASHOUT, own, coefficients)
        return (readout(engine.run(u)) - y)[WASHOUT:]

    chosen_on, tested_on = ([errors(HORIZON, next(seeds), BEFORE) for _ in range(size.watched)] for _ in range(2))
    threshold = choose_threshold(chosen_on, horizon=HORIZON, false_alarm=FALSE_ALARM)
    alarms, runs = false_alarms(DriftMonitor(1, threshold=threshold), tested_on, horizon=HORIZON)
    delays, blinded = [], 0
    for quiet in tested_on:
        monitor = DriftMonitor(1, threshold=threshold)
        for row in quiet:
            monitor.step(row)
        earlier = monitor.alarms
        changed = errors(HORIZON, next(seeds), AFTER)
        delay = next((float(i) for i, row in enumerate(changed, 1) if monitor.step(row).alarm), None)
        delays.append(delay)
        blinded += delay is None and earlier > 0
    seen = [delay for delay in delays if delay is not None]
    false, missed, late = (
        wilson(alarms, runs),
        wilson(len(delays) - len(seen), len(delays)),
        mean_interval(seen or [inf]),
    )
    of = partial(row_of, "drift", precision=PRECISION)
    rows = [of("false alarms", "share", false, FALSE_ALARM), of("missed", "share", missed), of("delay", "steps", late)]
    seen_by_monitor = {"false": false, "missed": missed, "late": late, "blinded": blinded}
    limits = {"threshold": threshold, "horizon": HORIZON, "allowed": FALSE_ALARM}
    return rows, words("adaptation.drift", watched=size.watched, **limits, **seen_by_monitor)


@experiment(
    "adaptation", "After the world changes, which way of learning on the device follows it soonest, and at what cost?"
)
def run(settings: Settings, progress: Progress) -> Result:
    """Return how far every way has come under every profile, and how a monitor saw the change."""
    size = QUICK if settings.quick else FULL
    total = size.seeds * (1 + len(WAYS) * len(PROFILES))
    worlds = []
    for i in range(size.seeds):
        progress(i, total, f"network {i + 1} of {size.seeds}")
        worlds.append(_world(settings.seed * 1000 + i, size))
    oracle = float(np.mean([world.oracle for world in worlds]))
    goals = [GOAL * world.oracle for world in worlds]
    figures: dict[tuple[str, str], _Figures] = {}
    done = size.seeds
    for profile in PROFILES:
        for name, way in WAYS.items():
            traces = []
            for world in worlds:
                progress(done, total, f"{name}, {profile}")
                traces.append(_trace(way, world, profile, size))
                done += 1
            figures[profile, name] = _figures(traces, goals)
    rows, drift = _drift(size, settings.seed)
    said = (*_words(worlds[0], size, oracle), *drift)
    return Result.of((*_rows(figures, oracle), *rows), _table(figures, size), said, _checks(figures))


def _rows(figures: dict[tuple[str, str], _Figures], oracle: float) -> Iterator[ResultRow]:
    for (profile, name), found in figures.items():
        idle, of = figures[profile, "none"], partial(row_of, profile, name, precision=PRECISION, refit=name == "refit")
        yield of("nrmse", found.error, oracle)
        yield of("steps_to_adapt", found.steps, idle.steps.value)
        yield of("modelled_seconds_to_adapt", found.seconds, idle.seconds.value)


def _table(figures: dict[tuple[str, str], _Figures], size: _Size) -> Iterator[tuple[str, ...]]:
    yield "profile", "way", "NRMSE after", "steps to adapt", "device s", "pushes", "adapted"
    for (profile, name), found in figures.items():
        bound = "" if found.reached == size.seeds else ">= "
        yield (
            profile,
            name,
            shown(found.error, ".3f"),
            bound + shown(found.steps, ".0f"),
            f"{bound}{found.seconds.value:.3g}",
            f"{found.pushes:.0f}",
            f"{found.reached} of {size.seeds}",
        )


def _words(world: _World, size: _Size, oracle: float) -> Iterator[str]:
    yield from words(
        "adaptation.setting", before=BEFORE, after=AFTER, size=size, precision=PRECISION, oracle=oracle, goal=GOAL
    )
    for profile in PROFILES:
        with world.network(profile) as network:
            yield f"{plan_updates(profile, network).reason}."


def _checks(figures: dict[tuple[str, str], _Figures]) -> Iterator[Check]:
    for profile in PROFILES:
        idle = min(figures[profile, name].error.value for name in BASELINES)
        for name in WAYS:
            error = figures[profile, name].error.value
            if name not in BASELINES:
                came = f"NRMSE {error:.3f} against {idle:.3f}"
                yield f"{name} ends below both baselines under {profile}", came, error < idle
