r"""Whether anything is still uncertain enough to wake a producer, for ordering E.

    variance = mean over b of Var[log chi(b)],     b drawn from the posterior of the peak's place,

under the Gaussian process through what was measured: what happens far from the peak does not wake anybody.

Below the threshold the producer sleeps; since only a measurement could change that, the campaign is over.
"""

from collections.abc import Callable

import numpy as np

from metalforge.campaign.physics.selection import observe
from metalforge.campaign.spec import CampaignSpec, Dims
from metalforge.campaign.steerers.posterior import Curves, fit_processes
from metalforge.core.threads import one_thread

from .book import Book

FEWEST = 4
"""Chains below which nothing is certain."""
GRID = 101
PATHS = 256


def predictive_variance(book: Book, spec: CampaignSpec, dims: Dims) -> float | None:
    """Return the variance of log chi where the peak may be; None while there are too few chains."""
    with book.reading() as state:
        chains = [c for c in state.chains.values() if c.dims == dims and c.complete and not c.abandoned]
        series = [(c.series(complete=True), c.id, float(c.complete)) for c in chains]
    seen = [observe(point, id=chain, cost=cost) for point, chain, cost in series]
    told = sorted((o for o in seen if o is not None and o.value > 0), key=lambda o: (o.beta, o.id))
    if len(told) < FEWEST:
        return None
    low, high = spec.theory.low, spec.theory.high
    x = (np.array([o.beta for o in told]) - low) / (high - low)
    with one_thread():
        curves = Curves(
            fit_processes(told, x, "log"), np.linspace(0, 1, GRID), GRID, PATHS, np.random.default_rng(spec.seed)
        )
    spread = curves.paths.var(axis=1)
    return float(np.interp(curves.peaks(), curves.x, spread).mean())


def make_sleep(book: Book, spec: CampaignSpec) -> Callable[[Dims], str | None]:
    """Return the question for the planner."""

    def sleep(dims: Dims) -> str | None:
        variance = predictive_variance(book, spec, dims)
        if variance is None or variance > spec.screening.variance:
            return None
        return f"the variance of log chi around the peak is {variance:.3g}, below {spec.screening.variance:g}"

    return sleep
