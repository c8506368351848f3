"""What a head must beat: simple predictors, fitted to the same training chains and asked on the same trajectories.

- `constant`: the mean label of the training rows (of classes, their share).
- `coupling alone`: the mean label at each training coupling, interpolated linearly; `coupling on its lattice` does it
  for chains of the same extents and mass.
- `single feature`: the best of all features by itself: for classes a threshold with the shares on either side, else a
  straight line. The best is chosen on the training rows.
- `last value`: the last count of iterations, or the running rejection rate.
- `MSER`: thermalised where twice the MSER cut of the plaquettes so far leaves half of them.
- `largest deviation`: of the plaquette's window, as a threshold.
- `origin's formula`: the formulas that answer where no head is trusted.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from .chains import Doubles
from .dataset import Example
from .features import FEATURES
from .heads_training import label_rows
from .heuristics import cg_iterations, rejection_probability, thermalised

__all__ = ["baselines_for"]

Predictor: TypeAlias = Callable[[Example], Doubles]
CUTS = 24
"""Thresholds that are tried for each feature, at equal shares of the rows."""


def baselines_for(head: str, examples: Sequence[Example], *, classes: bool) -> dict[str, Predictor]:
    """Return predictors of a head's label by name, fitted to these chains."""
    rows = [(example, label_rows(example, head)) for example in examples]
    rows = [(example, label) for example, label in rows if np.isfinite(label).any()]
    inputs = np.concatenate([example.inputs[np.isfinite(label)] for example, label in rows])
    labels = np.concatenate([label[np.isfinite(label)] for _, label in rows])
    mean = float(labels.mean())
    found: dict[str, Predictor] = {"constant": lambda example: np.full(len(example.inputs), mean)}
    found["coupling alone"] = _coupling_alone(rows)
    found["coupling on its lattice"] = _coupling_on_lattice(rows)
    found["single feature"] = _threshold(inputs, labels) if classes else _line(inputs, labels)
    if head == "thermalization":
        # A verdict of yes or no, with the shares it had in training.
        says = np.concatenate([example.chain.column("mser")[np.isfinite(label)] for example, label in rows])
        yes, no = (float(labels[says == v].mean()) if (says == v).any() else mean for v in (1, 0))
        found["origin's formula"] = _thermalised_formula
        found["MSER"] = lambda example: np.where(example.chain.column("mser") > 0, yes, no)
    if head == "anomaly":
        found["largest deviation"] = _threshold(inputs, labels, only=("largest_deviation",))
    if head == "rejection":
        found["last value"] = _running_rejection
        found["origin's formula"] = _rejection_formula
    if head == "cg_estimate":
        found["last value"] = lambda example: _before(example.chain.column("cg_iterations"), mean)
        found["origin's formula"] = _cg_formula
    return found


def _coupling_alone(rows: Sequence[tuple[Example, Doubles]]) -> Predictor:
    betas = sorted({example.beta for example, _ in rows})
    means = [float(np.nanmean(np.concatenate([y for e, y in rows if e.beta == beta]))) for beta in betas]
    return lambda example: np.full(len(example.inputs), np.interp(example.beta, betas, means))


def _coupling_on_lattice(rows: Sequence[tuple[Example, Doubles]]) -> Predictor:
    def place(example: Example) -> tuple[object, ...]:
        return example.chain.entry.dims, example.chain.entry.mass

    everywhere = _coupling_alone(rows)
    known = {place(example) for example, _ in rows}
    by_lattice = {key: _coupling_alone([row for row in rows if place(row[0]) == key]) for key in known}
    return lambda example: by_lattice.get(place(example), everywhere)(example)


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


def _rejection_formula(example: Example) -> Doubles:
    quarter = example.chain.column("delta_h_quarter")
    return np.array([rejection_probability(float(x)) for x in quarter])


def _thermalised_formula(example: Example) -> Doubles:
    chain = example.chain
    plaquette = (chain.column("plaquette_spatial") + chain.column("plaquette_temporal")) / 2
    return np.array([float(thermalised(plaquette[max(t - 19, 0) : t + 1].tolist())) for t in range(len(plaquette))])


def _cg_formula(example: Example) -> Doubles:
    entry = example.chain.entry
    return np.full(len(example.inputs), float(cg_iterations(int(np.prod(entry.dims)), entry.mass)))
