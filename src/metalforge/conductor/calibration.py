r"""Whether an ensemble knows how far off it is, on couplings it has not seen.

Of heads that are numbers: the share of labels within the intervals of 68 % and 95 %. Of heads that are probabilities:
the expected calibration error, with rows grouped in ten bins by what was said,

    sum_bins (rows in the bin / rows) |mean probability - share of yes|.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from .chains import Doubles
from .dataset import Example
from .ensemble import Ensemble
from .heads_training import label_rows
from .predicting import layout_of

__all__ = ["HeadCalibration", "calibration"]

BINS = 10


class HeadCalibration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One head over so many test chains; intervals are of numbers, the calibration error is of probabilities."""

    name: str
    chains: int
    within_68: float | None = None
    within_95: float | None = None
    calibration_error: float | None = None


def calibration(ensemble: Ensemble, test: Sequence[Example]) -> list[HeadCalibration]:
    """Return every head that has labels on the test chains."""
    layout = layout_of(ensemble.members[0])
    said = [ensemble.predict(example.inputs) for example in test]
    found = []
    for name in ensemble.members[0].fits:
        labels = [label_rows(example, name) for example in test]
        taken = [i for i, label in enumerate(labels) if np.isfinite(label).any()]
        if not taken:
            continue

        def rows(field: str, taken: Sequence[int] = taken, name: str = name) -> Doubles:
            return np.concatenate([getattr(said[i][name], field) for i in taken])

        label = np.concatenate([labels[i] for i in taken])
        known = np.isfinite(label)
        value, label = rows("value")[known], label[known]
        if layout[name].loss == "log":
            error = _expected_error(value, label)
            found.append(HeadCalibration(name=name, chains=len(taken), calibration_error=error))
            continue
        off = np.abs(value - label)
        shares = [float(np.mean(off <= rows(field)[known])) for field in ("half_68", "half_95")]
        found.append(HeadCalibration(name=name, chains=len(taken), within_68=shares[0], within_95=shares[1]))
    return found


def _expected_error(probability: Doubles, label: Doubles) -> float:
    bins = np.minimum((probability * BINS).astype(int), BINS - 1)
    gaps = [np.abs((probability - label)[bins == k].sum()) for k in range(BINS)]
    return float(np.sum(gaps) / len(label))
