r"""What classical criteria say of a growing series, from trajectory to trajectory: baselines of thermalisation.

- MSER: twice the cut that minimises the marginal standard error leaves at least half of what was seen.
- Geweke: with the first half of what was seen dropped as warm-up, the mean of the first tenth of the rest differs from
  that of its second half by less than 1.96 errors (J. Geweke, 1992),

      z = (mean_a - mean_b) / sigma sqrt(2 tau (1/n_a + 1/n_b)),

  with sigma and tau of the second half, where a transient inflates them least.

Verdicts are given every `EVERY` trajectories and hold until the next.
"""

from collections.abc import Callable, Mapping

import numpy as np

from metalforge.statistics import gamma_method, mser

from .chains import ChainRecord, Doubles

__all__ = ["CRITERIA", "says"]

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
