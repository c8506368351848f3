"""Orderings: who produces what, what is checked, and what may sleep, over logical substrates.

One is added by a line of `ORDERINGS`, and where its lanes are new by a function from systems and substrates to them;
the spec, the command line, `auto` and the graph follow from there. A spec may say the letter or the name.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Literal, NamedTuple, TypeAlias

from metalforge.core import SpecError, UnknownNameError

System: TypeAlias = tuple[int, ...]
Volumes: TypeAlias = tuple[System, ...]
Substrates: TypeAlias = tuple[str, ...]
Checks: TypeAlias = Literal["none", "flagged", "all"]
"""Which configurations are evaluated again in higher precision."""
AUTO = "auto"
"""What a spec says that lets the campaign measure which ordering is best here."""


class Assignee(NamedTuple):
    """Who a visit is for: a substrate and the systems it may run.

    `follows` makes it run only where chains of another volume have flagged. `sites` are what keeps it busy:
    it is given as many chains at once; without, one. Chains go on where `bits` are the same alone.
    """

    substrate: str
    systems: Volumes = ()
    follows: System | None = None
    sites: int = 0
    bits: str = ""

    @property
    def most(self) -> int:
        """Chains at once, at most."""
        return max(round(1 / self.share(system)) for system in self.systems)

    def share(self, system: System) -> float:
        """Return the part of the substrate that a chain keeps busy."""
        return 1 / max(-(-self.sites // prod(system)), 1)


def _first_produces(systems: Volumes, substrates: Substrates) -> tuple[Assignee, ...]:
    return (Assignee(substrates[0], systems[:1]),)


def _all_produce(systems: Volumes, substrates: Substrates) -> tuple[Assignee, ...]:
    return tuple(Assignee(name, systems) for name in substrates)


def _scout(systems: Volumes, substrates: Substrates) -> tuple[Assignee, ...]:
    target, scout = systems[:2]
    large = substrates[1] if len(substrates) > 1 else f"{substrates[0]}.large"
    return Assignee(substrates[0], (scout,)), Assignee(large, (target,), follows=scout)


class Ordering(NamedTuple):
    """An ordering: its letter and name, in words what runs, who produces, what is checked, whether it may sleep.

    `systems` is the fewest it needs; `every_volume` says that it runs all that there are, `tried` that `auto` tries it.
    """

    letter: str
    name: str
    about: str
    lanes: Callable[[Volumes, Substrates], tuple[Assignee, ...]] = _first_produces
    checks: Checks = "none"
    screens: bool = True
    sleeps: bool = False
    systems: int = 1
    every_volume: bool = False
    tried: bool = True
    wide_last: bool = False
    """Whether silicon that runs many chains at once comes after the rest."""


ORDERINGS: dict[str, Ordering] = {
    one.letter: one
    for one in (
        Ordering("A", "check-flagged", "produce, screen, check what is flagged in higher precision", checks="flagged"),
        Ordering(
            "B",
            "scout",
            "a small volume scouts, the large one runs where it flagged",
            _scout,
            systems=2,
            wide_last=True,
        ),
        Ordering("C", "all-produce", "all produce, the posterior picks each place", _all_produce, every_volume=True),
        Ordering(
            "D", "check-all", "every configuration is evaluated again in higher precision", checks="all", screens=False
        ),
        Ordering(
            "E",
            "sleep",
            "the producer sleeps while the variance is small, and is woken where the target or evidence needs more",
            sleeps=True,
            tried=False,
        ),
    )
}
"""All orderings by their letters."""


def ordering_of(text: str) -> str:
    """Return the letter of an ordering that was given by letter or name; `auto` stays.

    Raises
    ------
    UnknownNameError
        There is no such ordering.
    """
    names = {one.name: one.letter for one in ORDERINGS.values()}
    if text == AUTO or text in ORDERINGS:
        return text
    if text not in names:
        raise UnknownNameError("ordering", text, [*ORDERINGS, *names, AUTO])
    return names[text]


class Arrangement(NamedTuple):
    """One ordering on this machine: its lanes, where it checks, and whether it has a screen."""

    ordering: Ordering
    lanes: tuple[Assignee, ...]
    checker: str | None
    screens: bool


def arrange(ordering: str, systems: Volumes, found: Sequence[Assignee]) -> Arrangement:
    """Return an ordering over the lanes that there are, in the order of preference; with one only, they share it.

    Lanes may have systems of their own, which they run; a name that the ordering makes up is on the first lane.
    """
    chosen = ORDERINGS[ordering]
    if chosen.wide_last:
        found = sorted(found, key=lambda lane: lane.sites > 0)
    if len(systems) < chosen.systems:
        raise SpecError(
            f"ordering {ordering} wants {chosen.systems} systems, of which the first is the one that the result is "
            f"quoted for. Got {len(systems)}"
        )
    known = {lane.substrate: lane for lane in found}
    lanes = []
    for who in chosen.lanes(systems, tuple(known)):
        on = known.get(who.substrate, found[0]._replace(systems=()))
        lanes.append(who._replace(systems=on.systems or who.systems, sites=on.sites, bits=on.bits))
    checker = None if chosen.checks == "none" else found[1 % len(found)].substrate
    return Arrangement(chosen, tuple(lanes), checker, chosen.screens)
