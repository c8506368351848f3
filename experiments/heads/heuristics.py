r"""The formulas that answer when no head is trusted: the published ones, each with what was wrong in it mended or said.

They are baselines, not physics. Where the published design had the known transition, beta_c = 5.6925, in its formulas,
the caller gives a `centre` from measurement. Widths are the published design's and have no other source. Rules that
place the points of a scan are shared with the campaign's steerers: `core.steering`.
"""

import math
from collections.abc import Sequence

WIDTH = 0.3
"""Of the bell exp(-(beta - centre)^2 / WIDTH): half height at 0.46 from the centre."""
HALF_TRANSITION = 0.1
"""The published design calls beta within about 0.1 of its transition (5.59 to 5.79) neither phase."""


def priority(beta: float, centre: float) -> float:
    """Return exp(-(beta - centre)^2 / 0.3): worth a run near the transition."""
    return math.exp(-((beta - centre) ** 2) / WIDTH)


def step_parameters(volume: int, trajectory_length: float = 0.5) -> tuple[float, int]:
    """Return (step size, steps): about max(0.001, 0.05 (4096 / V)^(1/4)), at least 20 steps to the trajectory.

    The published design took its step and then its 20 steps at least, so that 8^4 ran twice the length it reported;
    here the steps come first and the step size is length / steps. Coupling and mass are ignored, as they were.
    """
    wanted = max(0.001, 0.05 * (4096 / volume) ** 0.25)
    n_steps = max(20, round(trajectory_length / wanted))
    return trajectory_length / n_steps, n_steps


def cg_iterations(volume: int, mass: float) -> int:
    """Return 100 + sqrt(V) / max(m, 0.01): iterations of one solve.

    A condition number ~ 1/m^2 makes conjugate gradients ~ 1/m; sqrt(V) and 100 have no derivation.
    """
    return round(100 + math.sqrt(volume) / max(mass, 0.01))


def thermalised(window: Sequence[float]) -> bool:
    """Return whether >= 10 values have sigma / |mean| < 0.02 and halves whose means differ by < 0.005.

    Kept as the published design's rule, for comparison: neither bound knows the noise or the autocorrelation of the
    chain, so it stops early on a slow drift of a large lattice and late on a small one.
    """
    n = len(window)
    if n < 10 or not all(map(math.isfinite, window)):
        return False
    mean = sum(window) / n
    sigma = math.sqrt(sum((x - mean) ** 2 for x in window) / (n - 1))
    first, second = window[: n // 2], window[n // 2 :]
    drift = abs(sum(second) / len(second) - sum(first) / len(first))
    return sigma < 0.02 * abs(mean) and drift < 0.005


def rejection_probability(delta_h: float) -> float:
    """Return 1 - exp(-max(dH, 0)): what the accept test does if dH stays as it is now.

    Exact at the end of a trajectory; on the way it is a guess, and no bound: dH of a symplectic integrator swings,
    and nothing proves from its value half way that the test *must* reject. So there is no exact early rejection here.
    """
    if math.isnan(delta_h):
        return 1.0
    return -math.expm1(-max(delta_h, 0.0))


def deconfined_probability(beta: float, centre: float | None) -> float:
    """Return 0, 1/2 or 1: below, within 0.1 of, or above the centre; 1/2 without one.

    From the coupling alone, as the published design did, although it was handed the Polyakov loop.
    """
    if centre is None or abs(beta - centre) <= HALF_TRANSITION:
        return 0.5
    return float(beta > centre)


def quality(n_measurements: int, acceptance: float, cg_iterations: float | None) -> float:
    """Return points in [0.3, 1] for acceptance > 0.3, 100 measurements, and solves below 1000 iterations.

    A quenched chain gets the points of its solves. It says nothing of autocorrelation, which is what decides.
    """
    easy = cg_iterations is None or cg_iterations < 1000
    return (0.4 if acceptance > 0.3 else 0.1) + (0.3 if n_measurements >= 100 else 0.1) + (0.3 if easy else 0.1)


def anomaly(plaquette: float, delta_h: float | None, cg_iterations: float | None) -> bool:
    """Return whether |dH| > 50, a solve took > 4000 iterations, the plaquette is impossible, or one is not a number.

    Re tr U / 3 of SU(3) is in [-1/2, 1]. The published design called every negative plaquette broken, which a hot start
    has.
    """
    if not -0.5 <= plaquette <= 1.0:  # also when it is not a number
        return True
    return (delta_h is not None and not abs(delta_h) <= 50) or (cg_iterations is not None and not cg_iterations <= 4000)
