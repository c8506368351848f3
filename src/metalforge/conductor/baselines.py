r"""What a head must beat: simple predictors, fitted to the same training chains and asked on the same trajectories.

- `constant`: the mean label of the training rows (of classes, their share: the majority).
- `coupling alone`: the mean label at each training coupling, interpolated linearly; `coupling on its lattice` does it
  for chains of the same extents and mass.
- `single feature`: the best of all features by itself: for classes a threshold with the shares on either side, else a
  straight line. The best is chosen on the training rows.
- `last value`: the last count of iterations, or the running rejection rate.
- `MSER`, `Geweke`: whether the criterion calls the plaquettes so far thermalised, with the shares it had in training.
- `largest deviation`: of the plaquette's window, as a threshold.
- `published formula`: the formulas that answer where no head is trusted. Where one needs the transition's coupling it
  gets the training coupling of the largest susceptibility on the chain's lattice.

MSER says yes where twice the cut that minimises the marginal standard error leaves at least half of what was seen.
Geweke does where, with the first half of what was seen dropped as warm-up, the mean of the first tenth of the rest
differs from that of its second half by less than 1.96 errors (J. Geweke, 1992),

    z = (mean_a - mean_b) / sigma sqrt(2 tau (1/n_a + 1/n_b)),

with sigma and tau of the second half, where a transient inflates them least. Verdicts are given every `EVERY`
trajectories and hold until the next.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from metalforge.statistics import gamma_method, mser

from . import heuristics
from .chains import ChainRecord, Doubles
from .features import FEATURES
from .heads_training import label_rows
from .labels import Example
from .layouts import LABEL_OF

EVERY = 4
FIRST, FIRST_GEWEKE = 10, 40
"""Trajectories before which nothing is said."""
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


def says(criterion: str, chain: ChainRecord) -> Doubles:
    """Return 1 where a criterion calls a chain thermalised from its plaquettes up to then, else 0."""
    judge, plaquette = CRITERIA[criterion], chain.plaquette
    verdicts, now = np.zeros(len(plaquette)), False
    for t in range(FIRST - 1, len(plaquette)):
        if (t + 1) % EVERY == 0:
            now = judge(plaquette[: t + 1])
        verdicts[t] = now
    return verdicts


Predictor: TypeAlias = Callable[[Example], Doubles]
Rows: TypeAlias = Sequence[tuple[Example, Doubles]]
CUTS = 24
"""Thresholds that are tried for each feature, at equal shares of the rows."""


def baselines_for(head: str, examples: Sequence[Example], *, classes: bool) -> dict[str, Predictor]:
    """Return predictors of a head's label by name, fitted to these chains."""
    label = LABEL_OF.get(head, head)
    rows = [(example, label_rows(example, head)) for example in examples]
    rows = [(example, known) for example, known in rows if np.isfinite(known).any()]
    inputs = np.concatenate([example.inputs[np.isfinite(known)] for example, known in rows])
    labels = np.concatenate([known[np.isfinite(known)] for _, known in rows])
    mean = float(labels.mean())
    found: dict[str, Predictor] = {"constant": lambda example: np.full(len(example.inputs), mean)}
    found["coupling alone"] = _coupling_alone(rows)
    found["coupling on its lattice"] = _coupling_on_lattice(rows)
    found["single feature"] = _threshold(inputs, labels) if classes else _line(inputs, labels)
    if label == "thermalization":
        found |= {criterion: _verdict(criterion, rows, mean) for criterion in CRITERIA}
    if label == "anomaly":
        found["largest deviation"] = _threshold(inputs, labels, only=("largest_deviation",))
    if label == "rejection":
        found["last value"] = _running_rejection
    if label == "cg_estimate":
        found["last value"] = lambda example: _before(example.chain.column("cg_iterations"), mean)
    formula = _origin(label, examples, rows)
    return found if formula is None else found | {"published formula": formula}


def _origin(label: str, examples: Sequence[Example], rows: Rows) -> Predictor | None:
    """Return the published design's formula for a label; None where it had none."""
    by_trajectory: dict[str, Predictor] = {
        "thermalization": _thermalised_formula,
        "rejection": lambda e: _each(heuristics.rejection_probability, e.chain.column("delta_h_quarter")),
        "anomaly": _anomaly_formula,
    }
    if label in by_trajectory:
        return by_trajectory[label]
    centres = _centres(examples)
    by_chain: dict[str, Callable[[Example], float]] = {
        "phase": lambda e: heuristics.deconfined_probability(e.beta, centres.get(e.lattice)),
        "cg_estimate": lambda e: heuristics.cg_iterations(_volume(e), e.chain.entry.mass),
        "param_suggest": lambda e: heuristics.step_parameters(_volume(e), e.chain.entry.tau)[0],
        "quenched_length": lambda e: heuristics.quenched_length(e.beta, e.chain.entry.dims[0], centres.get(e.lattice)),
        "beta_priority": lambda e: heuristics.priority(e.beta, centres.get(e.lattice, e.beta)),
        "next_run": lambda e: heuristics.priority(e.beta, centres.get(e.lattice, e.beta)),
    }
    if label in by_chain:
        return lambda example: np.full(len(example.inputs), by_chain[label](example))
    if label == "quality":
        return _points(rows)
    return None


def _volume(example: Example) -> int:
    return int(np.prod(example.chain.entry.dims))


def _centres(examples: Sequence[Example]) -> dict[tuple[object, ...], float]:
    """Return, by lattice, the training coupling of the largest susceptibility."""
    best: dict[tuple[object, ...], tuple[float, float]] = {}
    for example in examples:
        found = example.labels.values.get("beta_priority")
        if found is not None and np.isfinite(found[0]):
            best[example.lattice] = max(best.get(example.lattice, (0.0, 0.0)), (float(found[0]), example.beta))
    return {lattice: beta for lattice, (_, beta) in best.items()}


def _verdict(criterion: str, rows: Rows, mean: float) -> Predictor:
    """Return a criterion's yes or no as the shares of thermalised rows that they had in training."""
    said = np.concatenate([says(criterion, example.chain)[np.isfinite(label)] for example, label in rows])
    labels = np.concatenate([label[np.isfinite(label)] for _, label in rows])
    yes, no = (float(labels[said == v].mean()) if (said == v).any() else mean for v in (1, 0))
    return lambda example: np.where(says(criterion, example.chain) > 0, yes, no)


def _coupling_alone(rows: Rows) -> Predictor:
    betas = sorted({example.beta for example, _ in rows})
    means = [float(np.nanmean(np.concatenate([y for e, y in rows if e.beta == beta]))) for beta in betas]
    return lambda example: np.full(len(example.inputs), np.interp(example.beta, betas, means))


def _coupling_on_lattice(rows: Rows) -> Predictor:
    everywhere = _coupling_alone(rows)
    known = {example.lattice for example, _ in rows}
    by_lattice = {key: _coupling_alone([row for row in rows if row[0].lattice == key]) for key in known}
    return lambda example: by_lattice.get(example.lattice, everywhere)(example)


def _threshold(inputs: Doubles, labels: Doubles, only: tuple[str, ...] = ()) -> Predictor:
    """Return the threshold on one feature with the least squared error of the shares on either side."""
    names = [feature.name for feature in FEATURES.features]
    best = (np.inf, 0, 0.0, 0.5, 0.5)
    for k in [names.index(name) for name in only] if only else range(inputs.shape[1]):
        x = inputs[:, k]
        for cut in np.unique(np.quantile(x, np.linspace(0.02, 0.98, CUTS))):
            above = x > cut
            if above.all() or not above.any():
                continue
            high, low = float(labels[above].mean()), float(labels[~above].mean())
            loss = float(np.mean((np.where(above, high, low) - labels) ** 2))
            if loss < best[0]:
                best = (loss, k, float(cut), high, low)
    _, k, cut, high, low = best
    return lambda example: np.where(example.inputs[:, k] > cut, high, low)


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
    return np.asarray((before[0] + 1) / (before[1] + 2))


def _each(formula: Callable[..., float], *columns: Doubles) -> Doubles:
    """Return a formula of every trajectory."""
    return np.array([float(formula(*values)) for values in zip(*(column.tolist() for column in columns), strict=True)])


def _thermalised_formula(example: Example) -> Doubles:
    plaquette = example.chain.plaquette
    windows = [plaquette[max(t - 19, 0) : t + 1].tolist() for t in range(len(plaquette))]
    return np.array([float(heuristics.thermalised(window)) for window in windows])


def _anomaly_formula(example: Example) -> Doubles:
    """Return the published design's flag from what is known before a trajectory's test and solves are taken up."""
    chain = example.chain
    errors, solves = _before(chain.column("delta_h"), 0.0), _before(chain.column("cg_iterations"), 0.0)
    return _each(heuristics.anomaly, chain.plaquette, errors, solves)


def _points(rows: Rows) -> Predictor:
    """Return the published points for quality; they have no unit, so a straight line gives them the label's."""

    def points(example: Example) -> Doubles:
        accepted = 1 - _running_rejection(example)
        solves = _before(example.chain.column("cg_iterations"), 0.0)
        return _each(heuristics.quality, np.arange(len(solves), dtype=np.float64), accepted, solves)

    x = np.concatenate([points(example)[np.isfinite(label)] for example, label in rows])
    y = np.concatenate([label[np.isfinite(label)] for _, label in rows])
    slope, offset = np.polyfit(x, y, 1) if np.ptp(x) > 0 else (0.0, float(y.mean()))
    return lambda example: offset + slope * points(example)
