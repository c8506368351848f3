r"""Whether a peak may be quoted: what it rests on, item by item, each with the number it needed and the number found.

A reweighted curve has a peak whatever the chains did. One that nobody measured, in between chains that each sat in a
phase of their own, looks as sharp as a good one and has the smallest error. So a number is *established* only when

- every point of the plan was visited, and chains were measured below, at and above the peak, from both kinds of start;
- its chains went back and forth between the phases, where there are two: |L| from below <|L|> - sd / 2 to above
  <|L|> + sd / 2 or back, mean and sd those at the peak. Between two thresholds noise at a border does not count. Where
  |L| has no deep valley there are no phases to cross between, and the item reads `not applicable`;
- enough independent samples and blocks carry it;
- each chain's own chi, <E> and <|L|> agree with the curve, and the time it spent in either phase with how often all
  chains cross (`agreement`), and neighbouring chains overlap.

The numbers needed are below, chosen on an exactly solved model and on 4^3 x 2 and then left alone;
`python -m experiments run coverage` measures what they are worth.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.core import one_thread
from metalforge.statistics import NotLocated

from .phases import Shape, crossings, shape_at
from .selection import MeasuredChain, PointSeries, neighbours, overlap
from .transition import Located, Transition, locate

Floats = NDArray[np.float64]
NOT_APPLICABLE = "not applicable"
AT_PEAK = 0.35
"""Distance from the peak, in its half width, within which a chain is *at* it: chi is then above 0.85 of its height."""
MIN_CROSSINGS = 20.0
"""Crossings of all chains within the peak's width together: the shares of the two phases are then known to a quarter
even where the memory of the chains is badly known."""
MIN_EFFECTIVE = 100.0
"""Independent samples at the peak: chi of as many is known to 15 %."""
MIN_BLOCKS = 150.0
"""Blocks of 3 tau_int that carry the peak: tau_int, and with it the error, is then known to a fifth. With 100, errors
of campaigns that stop as soon as they may came out a tenth too small on a model with two phases."""
MAX_PULL = 4.0
"""Largest disagreement of a chain with the curve, in standard errors, where up to 20 chains are compared."""
FALSE_ALARM = 1 / 800
"""Probability that the largest of 20 Gaussian pulls is beyond `MAX_PULL`; for more chains the limit keeps it."""
JUDGED_TAU = 20.0
"""Length of a chain in tau_int below which its own error is too uncertain to contradict anybody."""
MIN_OVERLAP = 0.1
"""Overlap of neighbours within the peak's width: 5 % of the samples of either are typical for the other."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One item: whether it holds, the number found and the number needed, and in words what was seen or would help.

    `at_most` says that the number needed is an upper bound; an item without a number needed is for information.
    """

    name: str
    holds: bool
    value: float | str
    needed: float | None
    at_most: bool = False
    text: str = ""


class Want(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A chain that the evidence lacks: where, how exactly there, from which start (empty: either), for which item."""

    coordinate: float
    reach: float
    start: str
    item: str


class PlannedPoints(NamedTuple):
    """How many points of one volume the campaign means to visit before it says anything, and how many it has."""

    points: int = 0
    visited: int = 0


class Finding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the chains of one volume say: the peak or why there is none, the evidence for it, and what it lacks."""

    transition: Transition | None
    said: str
    """Why there is none."""
    evidence: tuple[Evidence, ...]
    wants: tuple[Want, ...] = ()
    located: Located | None = None
    """What the peak was found from, for whoever draws it."""
    overlap: float | None = None
    """The smallest one of neighbours near the peak."""
    crossings: int | None = None
    """How often chains near the peak went from below one threshold to above the other, or back."""

    @property
    def established(self) -> bool:
        """Whether the number may be quoted."""
        return self.transition is not None and all(item.holds for item in self.evidence)

    @property
    def lacking(self) -> tuple[Evidence, ...]:
        """The items that do not hold."""
        return tuple(item for item in self.evidence if not item.holds)

    @property
    def value(self) -> float | None:
        """Where the peak is."""
        return None if self.transition is None else self.transition.result

    @property
    def error(self) -> float | None:
        """Its error."""
        return None if self.transition is None else self.transition.error


@one_thread()
def finding_of(points: Sequence[PointSeries], plan: PlannedPoints, *, seed: int, n_bootstrap: int) -> Finding:
    """Return the peak of chi with its evidence; without a peak, the reason, and the items that can be given."""
    missing = f"{plan.points - plan.visited} of the first points have no complete visit yet"
    visited = at_least("points visited", plan.visited, plan.points, missing)
    try:
        found = locate(points, seed=seed, n_bootstrap=n_bootstrap)
    except NotLocated as problem:
        reason, *hint = str(problem).splitlines()
        nowhere = Evidence(name="peak located", holds=False, value=0.0, needed=1.0, text="; ".join([reason, *hint]))
        return Finding(transition=None, said=reason, evidence=(visited, nowhere))
    return _weigh(found, visited)


def _weigh(found: Located, visited: Evidence) -> Finding:
    """Return what was found with all items of evidence, that of the plan first."""
    peak, pulls = found.transition, found.pulls
    near = [chain for chain in found.chains if abs(chain.coordinate - peak.result) <= peak.width]
    shape = shape_at(found.joint, found.chains, peak.result)
    order = found.chains[0].point.order_name
    around, wants = _around(peak, near)
    count = sum(crossings(chain.order, *shape.thresholds) for chain in near)
    joined = _overlap(peak, near)
    items = [
        visited,
        *around,
        _crossings(peak, count, shape, order),
        at_least("effective samples", peak.n_effective, MIN_EFFECTIVE, f"more updates near {peak.result:.5g}"),
        at_least("independent blocks", peak.n_blocks, MIN_BLOCKS, f"more updates near {peak.result:.5g}"),
        _largest("pull of chi", found, pulls.chi),
        _largest(f"pull of E and {order}", found, np.maximum(np.abs(pulls.energy), np.abs(pulls.order))),
        _shares(found),
        joined,
        _kind(peak, shape, order),
    ]
    return Finding(
        transition=peak,
        said="",
        evidence=tuple(items),
        wants=wants,
        located=found,
        overlap=float(joined.value),
        crossings=count,
    )


# -- chains around the peak -----------------------------------------------------------------------------------------


def _around(peak: Transition, near: Sequence[MeasuredChain]) -> tuple[list[Evidence], tuple[Want, ...]]:
    """Return the items that ask for chains below, at and above the peak and from both starts, and those missing."""
    half = peak.width / 2
    places = (
        ("chains below the peak", peak.result - half, half),
        ("chains at the peak", peak.result, AT_PEAK * peak.width),
        ("chains above the peak", peak.result + half, half),
    )
    items, wants = [], []
    for name, coordinate, reach in places:
        count = sum(abs(chain.coordinate - coordinate) <= reach for chain in near)
        items.append(at_least(name, count, 1, f"within {reach:.2g} of {coordinate:.5g}"))
        if not items[-1].holds:
            wants.append(Want(coordinate=coordinate, reach=reach, start="", item=name))
    starts = {chain.point.start for chain in near}
    if near and "" not in starts:
        name = "starts near the peak"
        other = "cold" if starts == {"hot"} else "hot"
        items.append(at_least(name, len(starts), 2, f"a chain from a {other} start near {peak.result:.5g}"))
        if not items[-1].holds:
            wants.append(Want(coordinate=peak.result, reach=peak.width, start=other, item=name))
    return items, tuple(wants)


def _overlap(peak: Transition, near: Sequence[MeasuredChain]) -> Evidence:
    pairs = [(overlap(low, high), low[0].coordinate, high[0].coordinate) for low, high in pairwise(neighbours(near))]
    least, low, high = min(pairs, default=(0.0, peak.result - peak.width, peak.result + peak.width))
    return at_least("overlap of neighbours", least, MIN_OVERLAP, f"a chain between {low:.5g} and {high:.5g}")


# -- phases ---------------------------------------------------------------------------------------------------------


def _kind(peak: Transition, shape: Shape, order: str) -> Evidence:
    """Return what kind of transition the distribution of the order parameter and B4 look like."""
    if shape.two_phases:
        seen = f"{order} has two maxima at the peak, the valley between them {shape.valley:.2f} of the lower one"
    else:
        few = f"two humps with a valley of only {shape.valley:.2f} of the lower one"
        humps = "one maximum" if shape.valley == 1.0 else few
        seen = f"{order} has {humps} at the peak: a crossover, or a volume too small to tell"
    text = f"{seen}; B4 = {peak.b4:.2f} +- {peak.b4_error:.2f} (1 for two sharp phases, 3 for one Gaussian)"
    return Evidence(name="kind of transition", holds=True, value=shape.kind, needed=None, text=text)


def _crossings(peak: Transition, count: int, shape: Shape, order: str) -> Evidence:
    """Return the item of crossings."""
    low, high = shape.thresholds
    name, where = "crossings between the phases", f"{order} from below {low:.3g} to above {high:.3g} or back"
    if not shape.two_phases:
        text = f"one phase: {count} times {where}"
        return Evidence(name=name, holds=True, value=NOT_APPLICABLE, needed=MIN_CROSSINGS, text=text)
    return at_least(name, count, MIN_CROSSINGS, f"longer chains near {peak.result:.5g}; {where}")


# -- agreement ------------------------------------------------------------------------------------------------------


def _largest(name: str, found: Located, pulls: Floats) -> Evidence:
    """Return the largest pull of those chains that are long enough to contradict anybody."""
    judged = np.flatnonzero(found.pulls.length >= JUDGED_TAU)
    if not judged.size:
        text = f"no chain is longer than {JUDGED_TAU:g} tau_int: longer chains"
        return Evidence(name=name, holds=False, value=0.0, needed=MAX_PULL, at_most=True, text=text)
    worst = judged[np.argmax(np.abs(pulls[judged]))]
    value, limit = float(abs(pulls[worst])), pull_limit(judged.size)
    coordinate = found.chains[worst].coordinate
    text = f"of {judged.size} chains, that at {coordinate:.5g} is so many standard errors from all chains together"
    return at_most(name, value, limit, text)


def pull_limit(chains: int) -> float:
    """Return the limit for the largest pull of so many chains, which sound chains exceed once in 800 campaigns."""
    from scipy.special import ndtri

    return max(MAX_PULL, round(float(-ndtri(FALSE_ALARM / (2 * chains))), 2))


def _shares(found: Located) -> Evidence:
    """Return the chain whose part in a phase is the least likely."""
    name, pulls = "pull of the time in a phase", found.pulls.share
    if pulls is None:
        text = "one phase, or crossings too few to say how long one lasts"
        return Evidence(name=name, holds=True, value=NOT_APPLICABLE, needed=MAX_PULL, at_most=True, text=text)
    return _largest(name, found, pulls)


def at_least(name: str, value: float, needed: float, text: str) -> Evidence:
    """Return an item that holds where the number found is not below the number needed."""
    return Evidence(name=name, holds=value >= needed, value=float(value), needed=float(needed), text=text)


def at_most(name: str, value: float, needed: float, text: str) -> Evidence:
    """Return an item that holds where the number found is not above the number needed."""
    return Evidence(name=name, holds=value <= needed, value=value, needed=needed, at_most=True, text=text)
