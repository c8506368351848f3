"""What plans a campaign over lanes, put together: steerers, lengths, priors and the planner that asks them."""

from collections.abc import Callable, Sequence

from metalforge.campaign.orderings import Assignee
from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.store.records import StoppedBy
from metalforge.campaign.theory import System
from metalforge.core.advice import Advisor
from metalforge.core.steering import Steerer

from .book import Book
from .equipment import steerer_of
from .expecting import PeakPriors
from .lengths import Lengths
from .planner import Planner
from .visits import VisitPlan


def planner_of(
    spec: CampaignSpec,
    book: Book,
    lanes: Sequence[Assignee],
    *,
    stop: Callable[[], StoppedBy | None],
    estimate: Callable[[], None],
    estimate_now: Callable[[], None] | None = None,
    halted: Callable[[], bool] = lambda: False,
    advisor: Advisor | None = None,
    sleeps: bool = False,
    checks: bool = False,
    steer: Callable[[CampaignSpec, System], Steerer] = steerer_of,
) -> Planner:
    """Return the planner of a campaign; `steer` makes the steerer of a volume."""
    sleep = None
    if sleeps:
        from .sleeping import make_sleep

        sleep = make_sleep(book, spec)
    plan = VisitPlan(
        spec=spec,
        steerers={system: steer(spec, system) for system in spec.theory.systems},
        sleep=sleep,
        bits={who.substrate: who.bits for who in lanes},
        lengths=None if advisor is None else Lengths(spec.warmup.cheap, advisor),
    )
    return Planner(
        spec,
        book,
        lanes,
        plan,
        stop=stop,
        halted=halted,
        estimate=estimate,
        estimate_now=estimate_now,
        priors=PeakPriors(spec, advisor),
        checks=checks,
    )
