r"""Baselines of heads: simple predictors, fitted to the same training chains and tested on the same frames.

- `constant`: the mean label of the training rows (of classes, their share: the majority).
- `scaled coupling`: the curve over x, the coupling's distance from the transition in its widths (`training`).
- `coupling on its lattice`: the mean label at each training coupling of the same extents and mass, interpolated.
- `single feature`: the best of all features by itself: for classes a threshold with the shares on either side, else a
  straight line. The best is chosen on the training rows.
- `last value`: the last count of iterations, the running rejection rate, the running mean of the loop.
- `MSER`, `Geweke`: whether the criterion calls the plaquettes so far thermalised, with the shares it had in training.
- `fixed length`: the share of training chains that were thermalised after as many updates.
- `plaquette band`: a threshold on how far the plaquette is from the chain's running mean, either way.
- `published formula`: the formulas that answer where no head is trusted. Where one needs the transition's coupling it
  gets that of the transition curve.

MSER says yes where twice the cut that minimises the marginal standard error leaves at least half of what was seen.
Geweke does where, with the first half of what was seen dropped as warm-up, the mean of the first tenth of the rest
differs from that of its second half by less than 1.96 errors (J. Geweke, 1992),

    z = (mean_a - mean_b) / sigma sqrt(2 tau (1/n_a + 1/n_b)),

with sigma and tau of the second half, where a transient inflates them least.

Where the published design had the known transition, beta_c = 5.6925, in its formulas, the caller gives a `centre`
from measurement. Widths are the published design's and have no other source.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from metalforge.conductor.curves import transition_of
from metalforge.conductor.features import SCHEMA
from metalforge.core.arrays import Doubles
from metalforge.lattice.campaign.theory import quenched_length
from metalforge.statistics import gamma_method, mser

from .labels import WARMING, Example, label_of
from .training import BASE, curve_at, fit_curve_over, in_own_unit, label_rows

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
    values = np.asarray(window, np.float64)
    n, mean = len(values), float(np.mean(values)) if len(values) else 0.0
    if n < 10 or not np.isfinite(values).all():
        return False
    drift = abs(values[n // 2 :].mean() - values[: n // 2].mean())
    return bool(values.std(ddof=1) < 0.02 * abs(mean) and drift < 0.005)


def rejection_probability(delta_h: float) -> float:
    """Return 1 - exp(-max(dH, 0)): what the accept test does if dH stays as it is now.

    Exact at the end of a trajectory; on the way it is a guess, and no bound: dH of a symplectic integrator swings,
    and nothing proves from its value half way that the test *must* reject. So there is no exact early rejection here.
    """
    if math.isnan(delta_h):
        return 1.0
    return -math.expm1(-max(delta_h, 0.0))


def deconfined_probability(beta: float, centre: float) -> float:
    """Return 0, 1/2 or 1: below, within 0.1 of, or above the centre.

    From the coupling alone, as the published design did, although it was handed the Polyakov loop.
    """
    return 0.5 if abs(beta - centre) <= HALF_TRANSITION else float(beta > centre)


FIRST, FIRST_GEWEKE = 10, 40
"""Updates before which nothing is said."""
DIFFERS = 1.96


def _mser(series: Doubles) -> bool:
    cut = mser(series)
    return cut.found and 2 * cut.start <= len(series) / 2


def _geweke(series: Doubles) -> bool:
    kept = series[len(series) // 2 :]
    early, late = kept[: max(len(kept) // 10, 5)], kept[len(kept) // 2 :]
    if len(series) < FIRST_GEWEKE or np.ptp(late) == 0:  # a chain that does not move has no error to compare with
        return False
    settled = gamma_method(late)
    error = settled.error * np.sqrt(1 + len(late) / len(early))
    return bool(abs(early.mean() - settled.mean) < DIFFERS * error)


CRITERIA: Mapping[str, Callable[[Doubles], bool]] = {"MSER": _mser, "Geweke": _geweke}


def says(criterion: str, example: Example) -> Doubles:
    """Return 1 where a criterion calls a chain thermalised from its plaquettes up to a frame's end, else 0.

    After `WARMING` updates the last answer is kept.
    """
    judge, plaquette = CRITERIA[criterion], example.chain.column("plaquette")
    asked = [judge(plaquette[: r + 1]) if r + 1 >= FIRST else False for r in example.rows[example.rows < WARMING]]
    verdicts = np.full(len(example.rows), float(asked[-1]) if asked else 0.0)
    verdicts[: len(asked)] = asked
    return verdicts


Predictor: TypeAlias = Callable[[Example], Doubles]
Rows: TypeAlias = Sequence[tuple[Example, Doubles]]
CUTS = 24
"""Thresholds that are tried for each feature, at equal shares of the rows."""


def baselines_for(head: str, examples: Sequence[Example], *, classes: bool) -> dict[str, Predictor]:
    """Return predictors of a head's label by name, fitted to these chains."""
    label = label_of(head)
    rows = [(example, label_rows(example, head)) for example in examples]
    rows = [(example, known) for example, known in rows if np.isfinite(known).any()]
    inputs = np.concatenate([example.inputs[np.isfinite(known)] for example, known in rows])
    labels = np.concatenate([known[np.isfinite(known)] for _, known in rows])
    mean = float(labels.mean())
    curve = fit_curve_over(BASE, inputs, labels)
    found: dict[str, Predictor] = {
        "constant": lambda example: np.full(len(example.inputs), mean),
        "scaled coupling": lambda example: curve_at(curve, example.inputs),
        "coupling on its lattice": _coupling_on_lattice(rows, mean),
        "single feature": _threshold(inputs, labels) if classes else _line(inputs, labels),
    }
    if label == "thermalization":
        found |= {criterion: _verdict(criterion, rows, mean) for criterion in CRITERIA}
        found["fixed length"] = _fixed_length(rows, mean)
    if label == "anomaly":
        found["plaquette band"] = _threshold(np.abs(inputs), labels, only=("z_slope",), both=True)
    if label == "rejection":
        found["last value"] = _running_rejection
    if label == "cg_estimate":
        found["last value"] = lambda example: _before(example.chain.column("cg_iterations"), mean)[example.rows]
    if label == "deconfinement":
        found["last value"] = lambda example: in_own_unit("loop_slow", example.inputs)
    formula = _published(label)
    return found if formula is None else found | {"published formula": formula}


def _published(label: str) -> Predictor | None:
    """Return the published design's formula for a label; None where it had none."""
    by_frame: dict[str, Predictor] = {
        "thermalization": _thermalised_formula,
        "rejection": lambda e: _each(rejection_probability, e.chain.column("delta_h_quarter"))[e.rows],
        # Re tr U / 3 is in [-1/2, 1]. The design called every negative plaquette broken, which a hot start has.
        "anomaly": lambda e: _each(lambda p: not -0.5 <= p <= 1.0, e.chain.column("plaquette"))[e.rows],
    }
    by_chain: dict[str, Callable[[Example], float]] = {
        "phase": lambda e: deconfined_probability(e.entry.beta, _centre(e)),
        "cg_estimate": lambda e: cg_iterations(_volume(e), e.entry.mass),
        "param_suggest": lambda e: float(np.log(step_parameters(_volume(e), e.entry.length)[0])),
        "quenched_length": lambda e: float(np.log1p(quenched_length(e.entry.beta, e.entry.dims[0], _centre(e)))),
        "next_run": lambda e: priority(e.entry.beta, _centre(e)),
    }
    if label in by_chain:
        return lambda example: np.full(len(example.inputs), by_chain[label](example))
    return by_frame.get(label)


def _volume(example: Example) -> int:
    return int(np.prod(example.entry.dims))


def _centre(example: Example) -> float:
    dims = example.entry.dims
    return transition_of(dims[3], dims[0]).mean


def _verdict(criterion: str, rows: Rows, mean: float) -> Predictor:
    """Return a criterion's yes or no as the shares of thermalised rows that they had in training."""
    said = np.concatenate([says(criterion, example)[np.isfinite(label)] for example, label in rows])
    labels = np.concatenate([label[np.isfinite(label)] for _, label in rows])
    yes, no = (float(labels[said == v].mean()) if (said == v).any() else mean for v in (1, 0))
    return lambda example: np.where(says(criterion, example) > 0, yes, no)


def _fixed_length(rows: Rows, mean: float) -> Predictor:
    """Return the share of thermalised chains after as many updates, by start."""
    shares: dict[tuple[str, int], list[float]] = {}
    for example, label in rows:
        for row, known in zip(example.rows.tolist(), label.tolist(), strict=True):
            if np.isfinite(known):
                shares.setdefault((example.entry.start, row), []).append(known)
    known_shares = {key: float(np.mean(values)) for key, values in shares.items()}
    return lambda example: np.array(
        [known_shares.get((example.entry.start, row), mean) for row in example.rows.tolist()]
    )


def _coupling_on_lattice(rows: Rows, mean: float) -> Predictor:
    lattices: dict[object, dict[float, list[Doubles]]] = {}
    for example, label in rows:
        lattices.setdefault(example.entry.lattice, {}).setdefault(example.entry.beta, []).append(label)
    curves = {
        lattice: (sorted(scan), [float(np.nanmean(np.concatenate(scan[beta]))) for beta in sorted(scan)])
        for lattice, scan in lattices.items()
    }

    def said(example: Example) -> Doubles:
        value = (
            np.interp(example.entry.beta, *curves[example.entry.lattice]) if example.entry.lattice in curves else mean
        )
        return np.full(len(example.inputs), float(value))

    return said


def _threshold(inputs: Doubles, labels: Doubles, only: tuple[str, ...] = (), *, both: bool = False) -> Predictor:
    """Return the threshold on one feature, or its size, with the least squared error of the shares on either side."""
    names = [feature.name for feature in SCHEMA.features]
    best = (np.inf, 0, 0.0, 0.5, 0.5)
    for k in [names.index(name) for name in only] if only else range(inputs.shape[1]):
        x = inputs[:, k]
        shares = np.append(np.linspace(0.02, 0.98, CUTS), [0.99, 0.995, 0.999])
        for cut in np.unique(np.quantile(x, shares)):
            above = x > cut
            if above.all() or not above.any():
                continue
            high, low = float(labels[above].mean()), float(labels[~above].mean())
            loss = float(np.mean((np.where(above, high, low) - labels) ** 2))
            if loss < best[0]:
                best = (loss, k, float(cut), high, low)
    _, k, cut, high, low = best

    def said(example: Example) -> Doubles:
        x = example.inputs[:, k]
        return np.where((np.abs(x) if both else x) > cut, high, low)

    return said


def _line(inputs: Doubles, labels: Doubles) -> Predictor:
    """Return the straight line in one feature with the least squared error."""
    centred, wanted = inputs - inputs.mean(axis=0), labels - labels.mean()
    size = (centred**2).sum(axis=0)
    moment = centred.T @ wanted
    gain = np.divide(moment**2, size, out=np.zeros_like(size), where=size > 1e-12)
    k = int(np.argmax(gain))
    slope = float(moment[k] / size[k]) if size[k] > 0 else 0.0
    offset, middle = float(labels.mean()), float(inputs[:, k].mean())
    return lambda example: offset + slope * (example.inputs[:, k] - middle)


def _before(values: Doubles, first: float) -> Doubles:
    """Return each entry's predecessor; what is not known is the last known one, or `first`."""
    found, last = np.empty(len(values)), first
    for t, value in enumerate(values):
        found[t] = last
        last = last if np.isnan(value) else float(value)
    return found


def _running_rejection(example: Example) -> Doubles:
    """Return the share of rejections so far, from one of each that were not seen."""
    rejected = 1 - example.chain.column("accepted")
    known = np.isfinite(rejected)
    counts, sums = np.cumsum(known), np.cumsum(np.where(known, rejected, 0))
    before = np.concatenate([[0.0], sums[:-1]]), np.concatenate([[0], counts[:-1]])
    return np.asarray(((before[0] + 1) / (before[1] + 2))[example.rows])


def _each(formula: Callable[..., float], *columns: Doubles) -> Doubles:
    """Return a formula of every update."""
    return np.array([float(formula(*values)) for values in zip(*(column.tolist() for column in columns), strict=True)])


def _thermalised_formula(example: Example) -> Doubles:
    plaquette = example.chain.column("plaquette")
    windows = [plaquette[max(r - 19, 0) : r + 1].tolist() for r in example.rows]
    return np.array([float(thermalised(window)) for window in windows])
