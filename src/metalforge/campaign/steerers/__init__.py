"""Steerers: observations go in by `tell`, the next places come out by `ask`.

All speak the protocol of `metalforge.core.steering`. The registrations below are all that a campaign knows of each; the
module of a steerer is imported when one is made.
"""

from typing import TYPE_CHECKING

from metalforge.core import Steerer, on_demand

from .registry import ANY, SystemScan, find_steerer, register_steerer, steerer_names

if TYPE_CHECKING:
    from .bisection import Bisection
    from .curve import CurveSteerer
    from .gaussian_process import GaussianProcess
    from .uniform import Gaps, Uniform

__all__ = [
    "ANY",
    "Bisection",
    "CurveSteerer",
    "Gaps",
    "GaussianProcess",
    "SystemScan",
    "Uniform",
    "find_steerer",
    "register_steerer",
    "steerer_names",
]
__getattr__, __dir__ = on_demand(__name__, __all__)


def _process(scan: SystemScan) -> Steerer:
    from .gaussian_process import GaussianProcess

    return GaussianProcess(
        scan.low, scan.high, initial=scan.initial, fresh_cost=scan.fresh_cost, reach=scan.reach, seed=scan.seed
    )


def _even(scan: SystemScan) -> int:
    """Return the points of an even scan whose runs can be joined, where they can be."""
    from .uniform import even_points

    return scan.initial if scan.reach is None else max(scan.initial, even_points(scan.low, scan.high, scan.reach))


def _uniform(scan: SystemScan) -> Steerer:
    from .uniform import Uniform

    return Uniform(scan.low, scan.high, points=_even(scan))


def _gaps(scan: SystemScan) -> Steerer:
    from .uniform import Gaps

    return Gaps(scan.low, scan.high)


def _curve(scan: SystemScan) -> Steerer:
    from .curve import CurveSteerer

    return CurveSteerer(scan.low, scan.high, initial=scan.initial, fresh_cost=scan.fresh_cost)


def _bisection(scan: SystemScan) -> Steerer:
    from .bisection import Bisection

    return Bisection(scan.low, scan.high)


# The process, whose prior may come from the conductor's head (`running.expecting`).
register_steerer(None, name="conductor", make=_process, adaptive=True, expects=True, of=("peak",))
register_steerer(None, name="gaussian-process", make=_process, adaptive=True, expects=True, of=("peak",))
register_steerer(None, name="uniform", make=_uniform, first_points=_even)
register_steerer(None, name="gaps", make=_gaps)
register_steerer(None, name="curve", make=_curve, adaptive=True, of=("curve",))
register_steerer(None, name="bisection", make=_bisection, first_points=lambda scan: 2, adaptive=True, of=("crossing",))
