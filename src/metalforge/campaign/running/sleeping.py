r"""When producers of ordering E sleep, and what wakes them.

    variance = mean over b of Var[log chi(b)],     b drawn from the posterior of the peak's place,

under the Gaussian process through what was measured, so that regions far from the peak do not count.

Below the threshold producers get no more visits. Once those under way are complete, an estimate is made from
everything that was measured. Where its evidence is incomplete or its error is above the target, each producer is given
one more round of visits, and the variance is compared with the threshold again. Otherwise the campaign is over.
"""

from collections.abc import Callable

import numpy as np

from metalforge.campaign.analysis.selection import observe
from metalforge.campaign.chain_log import series_of
from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.state import CampaignState
from metalforge.campaign.steerers.posterior import Curves, fit_processes
from metalforge.campaign.theory import System
from metalforge.core import one_thread

from .book import Book

FEWEST = 4
"""Chains below which nothing is certain."""
GRID = 101
PATHS = 256


def predictive_variance(book: Book, spec: CampaignSpec, system: System) -> float | None:
    """Return the variance of log chi where the peak may be; None while there are too few chains."""
    with book.reading() as state:
        chains = [c for c in state.chains.values() if c.system == system and c.complete and not c.abandoned]
        series = [(series_of(spec.theory, c, complete=True), c.id, float(c.complete)) for c in chains]
    seen = [observe(point, id=chain, cost=cost) for point, chain, cost in series]
    told = sorted((o for o in seen if o is not None and o.value > 0), key=lambda o: (o.coordinate, o.id))
    if len(told) < FEWEST:
        return None
    low, high = spec.theory.low, spec.theory.high
    x = (np.array([o.coordinate for o in told]) - low) / (high - low)
    with one_thread():
        curves = Curves(fit_processes(told, x), np.linspace(0, 1, GRID), GRID, PATHS, np.random.default_rng(spec.seed))
    spread = curves.paths.var(axis=1)
    return float(np.interp(curves.peaks(), curves.x, spread).mean())


def reason_to_wake(state: CampaignState, system: System) -> str | None:
    """Return why a volume whose variance is small must be measured further; None where nothing asks for that.

    It is for campaigns that have not met their target, if they have one: those that have are over.
    """
    look, target = state.last_look(system), state.spec.budget.target_error
    if look is None or look.error is None or not look.established:
        return "the evidence is not complete"
    return None if target is None else f"the target error of {target:g} is not met yet"


def make_sleep(book: Book, spec: CampaignSpec) -> Callable[[System], str | None]:
    """Return a function that says why the producers of a volume may sleep, or None where they may not."""

    def sleep(system: System) -> str | None:
        variance = predictive_variance(book, spec, system)
        if variance is None or variance > spec.screening.variance:
            return None
        return f"the variance of log chi around the peak is {variance:.3g}, below {spec.screening.variance:g}"

    return sleep
