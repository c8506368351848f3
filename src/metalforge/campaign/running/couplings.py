r"""Which couplings exchange: the ladder of a volume, from its first look to the one that is kept.

Two neighbours whose E have the standard deviation s swap with probability erfc(s dbeta / 2), so that the first ladder
has steps of 1.2 / s: four in ten are accepted where there is one phase. Between two phases E has two peaks, and swaps
are rarer. Once a peak is seen, couplings far from it go and those that the evidence lacks come. After each complete
visit couplings are put between neighbours that swap too rarely, and taken out between
those that swap almost always, as long as that makes round trips from end to end per update of work more frequent; then
the ladder with the most is kept. A ladder is frozen while it runs: another one is made of other chains, which begin
from both phases, hot and cold in turn.
"""

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from metalforge.campaign.analysis.evidence import EXCHANGE
from metalforge.campaign.chain_log import ChainLog, ladders_of, series_of
from metalforge.campaign.findings import traffic_of
from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.state import CampaignState
from metalforge.campaign.steerers import find_steerer
from metalforge.campaign.store.records import Estimated
from metalforge.campaign.theory import System

if TYPE_CHECKING:
    from metalforge.statistics import Traffic

STEP = 1.2
"""Steps of the first ladder in 1 / sd(E): erfc(0.6) = 0.40 of the swaps are accepted (the optimum for round trips is
between 0.2 and 0.45; A. Kone and D. A. Kofke, J. Chem. Phys. 122 (2005) 206101)."""
REACH = 2.5
"""How far a ladder reaches beyond the peak on either side, in its half width: the other phase has one part in a hundred
there, and replicas that come so far have forgotten where they came from."""
GENERATIONS = 6
"""Ladders of different couplings that are tried at most."""
RARE, FREQUENT = 0.2, 0.75
"""Rates of accepted swaps below which a coupling is put in between, and above which on both sides one is taken out."""
RISE = 1.1
"""Factor by which round trips per work must rise for the ladder to be refined once more."""
MOST, FEWEST = 24, 3
"""Replicas of a ladder."""


class Couplings(NamedTuple):
    """The couplings of the next ladder, and why."""

    coordinates: tuple[float, ...]
    reason: str


def by_couplings(chains: Sequence[ChainLog]) -> dict[tuple[float, ...], list[list[ChainLog]]]:
    """Return the ladders among chains by their couplings, in the order in which these were first tried."""
    found: dict[tuple[float, ...], list[list[ChainLog]]] = {}
    for rungs in ladders_of(chains):
        found.setdefault(tuple(chain.coordinate for chain in rungs), []).append(rungs)
    return found


def couplings_of(state: CampaignState, system: System, chains: Sequence[ChainLog]) -> Couplings | None:
    """Return the couplings at which a volume exchanges now; None where it does not."""
    if not (state.exchanging(system) and find_steerer(state.spec.steering.steerer).adaptive):
        return None
    made = by_couplings(chains)
    if not made:
        return _first(state, system, chains)
    moved = {coordinates: found for coordinates, same in made.items() if (found := _traffic(same)) is not None}
    last = list(made)[-1]
    if last not in moved:
        return Couplings(last, "another ladder beside the one under way")
    before = max((found.per_work for coordinates, found in moved.items() if coordinates != last), default=0.0)
    if moved[last].per_work >= RISE * before and len(made) < GENERATIONS:
        look = state.last_look(system)
        centred = last if look is None else around_peak(last, look)
        if centred != last:
            reason = "the peak has moved into sight: couplings below, at and above it, and few elsewhere"
            return Couplings(centred, reason)
        better = refined(last, moved[last])
        if better != last and len(better) <= MOST:
            rates = ", ".join(f"{rate:.2f}" for rate in moved[last].rates)
            return Couplings(better, f"swaps were accepted at rates {rates}: refined where rare, spread where frequent")
    best = max(moved, key=lambda coordinates: moved[coordinates].per_work)
    return Couplings(best, "another ladder at the couplings with the most round trips")


def _first(state: CampaignState, system: System, chains: Sequence[ChainLog]) -> Couplings:
    spec = state.spec
    low, high = spec.theory.low, spec.theory.high
    look = state.last_look(system)
    want = None if look is None else next((want for want in look.wants if want.start == EXCHANGE), None)
    step = STEP / _spread(spec, system, chains)
    if spec.running.exchange == "on" or want is None:
        reason, want = "asked for: chains exchange couplings", None
        count = _spanning(spec, system, step)
    else:
        reason = f"chains do not tunnel ({want.item}): from now on they exchange couplings"
        low, high = max(low, want.coordinate - REACH * want.reach), min(high, want.coordinate + REACH * want.reach)
        count = min(max(ceil((high - low) / step) + 1, FEWEST), MOST)
    if want is not None and (count - 1) * step < high - low:
        low, high = want.coordinate - (count - 1) * step / 2, want.coordinate + (count - 1) * step / 2
    return Couplings(tuple(float(coordinate) for coordinate in np.linspace(low, high, count).round(6)), reason)


def first_rungs(spec: CampaignSpec, system: System) -> int:
    """Return the chains of a volume's first visit: those of a ladder where couplings are exchanged from the start."""
    if spec.running.exchange != "on" or not find_steerer(spec.steering.steerer).adaptive:
        return 1
    return _spanning(spec, system, STEP / _spread(spec, system, ()))


def _spanning(spec: CampaignSpec, system: System, step: float) -> int:
    """Return the chains of a ladder over the whole range with steps of at most this size."""
    first = find_steerer(spec.steering.steerer).first_points(spec.scan(system))
    return min(max(ceil((spec.theory.high - spec.theory.low) / step) + 1, FEWEST, first), MOST)


def _spread(spec: CampaignSpec, system: System, chains: Sequence[ChainLog]) -> float:
    """Return the standard deviation of E in one phase: the median of the chains that are there."""
    series = [series_of(spec.theory, chain, complete=True) for chain in chains if chain.complete > chain.warmup + 1]
    found = [float(point.energy.std()) for point in series]
    return float(np.median(found)) if found and min(found) > 0 else spec.theory.variance_of_energy(system) ** 0.5


def _traffic(ladders: Sequence[Sequence[ChainLog]]) -> "Traffic | None":
    """Return how the replicas of ladders at the same couplings moved, once one of them has a complete visit."""
    found = [seen for rungs in ladders if rungs[0].ends and (seen := traffic_of(rungs)) is not None]
    if not found:
        return None
    weights = [one.updates for one in found]
    rates = np.average([one.rates for one in found], axis=0, weights=weights)
    from metalforge.statistics import Traffic

    return Traffic(rates, sum(one.round_trips for one in found), sum(weights))


def refined(coordinates: tuple[float, ...], seen: "Traffic") -> tuple[float, ...]:
    """Return the couplings with others where swaps are rare, and without those where they are frequent."""
    kept = [coordinates[0]]
    for i in range(1, len(coordinates)):
        rate = float(seen.rates[i - 1])
        if rate < RARE:
            kept.append(round((coordinates[i - 1] + coordinates[i]) / 2, 6))
        inner = i < len(coordinates) - 1
        frequent = inner and rate > FREQUENT and float(seen.rates[i]) > FREQUENT and kept[-1] == coordinates[i - 1]
        if not frequent or len(coordinates) <= FEWEST:
            kept.append(coordinates[i])
    return tuple(kept)


def around_peak(coordinates: tuple[float, ...], look: Estimated) -> tuple[float, ...]:
    """Return the couplings with those that the evidence lacks near the peak, and without those far from it.

    The first beyond the reach stays on either side; a ladder that has what is needed, and reaches hardly beyond it,
    stays as it is.
    """
    lacking = [want.coordinate for want in look.wants if want.start == ""]
    if look.result is None or not look.width:
        return coordinates
    low, high = look.result - REACH * look.width, look.result + REACH * look.width
    below, above = [b for b in coordinates if b < low], [b for b in coordinates if b > high]
    if not lacking and len(below) <= 2 and len(above) <= 2:
        return coordinates
    inside = [b for b in coordinates if low <= b <= high]
    kept = [*below[-1:], *inside, *above[:1], *(round(coordinate, 6) for coordinate in lacking)]
    return tuple(sorted(set(kept))) if len(kept) >= FEWEST else coordinates
