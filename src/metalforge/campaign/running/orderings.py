"""Orderings A to E: who produces what, what is checked, and what may sleep, over logical substrates.

========  ==============================================================================================================
A         one producer of the first volume; flagged configurations are checked in higher precision on another core
B         a scout on the second volume; the first volume is run only at beta that the scout's chains flagged
C         every substrate produces, the posterior picks each beta
D         one producer; every configuration is evaluated again in higher precision on another core
E         one producer that sleeps unless the predictive variance of log chi is above a threshold
========  ==============================================================================================================
"""

from dataclasses import dataclass
from typing import Literal

from metalforge.campaign.spec import CampaignSpec, Ordering
from metalforge.campaign.store.records import EMULATED_NPU, Silicon
from metalforge.core.errors import SpecError

from .visits import Assignee

__all__ = ["Arrangement", "arrange", "silicon_of"]

Checks = Literal["none", "flagged", "all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """One ordering on this machine: its lanes, what is checked and where, whether it screens and may sleep."""

    ordering: Ordering
    lanes: tuple[Assignee, ...]
    checks: Checks = "none"
    checker: str | None = None
    screens: bool = True
    sleeps: bool = False


def arrange(ordering: Ordering, spec: CampaignSpec, substrates: tuple[str, ...]) -> Arrangement:
    """Return an ordering over logical substrates, in the order of preference; with one only, they share it."""
    volumes = spec.lattice.volumes
    first, second = substrates[0], substrates[1 % len(substrates)]
    if ordering == "A":
        return Arrangement(ordering="A", lanes=(Assignee(first, volumes[:1]),), checks="flagged", checker=second)
    if ordering == "B":
        if len(volumes) < 2:
            raise SpecError(
                "ordering B wants two volumes: the one that beta_c is quoted for, and the scout's\n"
                "hint: lattice.volumes = [[8, 8, 8, 4], [4, 4, 4, 4]]"
            )
        scout, target = volumes[1], volumes[0]
        large = second if len(substrates) > 1 else f"{first}.large"
        return Arrangement(ordering="B", lanes=(Assignee(first, (scout,)), Assignee(large, (target,), follows=scout)))
    if ordering == "C":
        return Arrangement(ordering="C", lanes=tuple(Assignee(name, volumes) for name in substrates))
    if ordering == "D":
        return Arrangement(
            ordering="D", lanes=(Assignee(first, volumes[:1]),), checks="all", checker=second, screens=False
        )
    if ordering == "E":
        return Arrangement(ordering="E", lanes=(Assignee(first, volumes[:1]),), sleeps=True)
    raise SpecError(f"`ordering` must be one of A to E here. Got {ordering}")


def silicon_of(
    arrangement: Arrangement, device: str, model: str, *, emulated: str | None = None
) -> tuple[Silicon, ...]:
    """Return what each logical substrate does; `emulated` is the profile of the board that screens, if one does."""
    rows = [
        Silicon(
            name=lane.substrate,
            device=device,
            model=model,
            role="follows the scout" if lane.follows is not None else "produces",
        )
        for lane in arrangement.lanes
    ]
    if arrangement.checker is not None:
        rows.append(Silicon(name=arrangement.checker, device=device, model=model, role=f"checks {arrangement.checks}"))
    if arrangement.screens and emulated is not None:
        rows.append(Silicon(name=EMULATED_NPU, device="host", model=f"{emulated}, emulated", role="screens"))
    return tuple(rows)
