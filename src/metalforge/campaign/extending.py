"""More of a campaign: what was asked beside a spec, or of a campaign that has run -> the spec that is then in force.

Beside a spec or a preset a budget is the whole one and systems take the place of the spec's. For a campaign that has
run, seconds and updates are added to its limits, and systems to those it has.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from math import inf, isfinite, nan
from typing import Any

import msgspec

from metalforge.core import SpecError

from .orderings import AUTO, ORDERINGS
from .spec import CampaignSpec
from .state import CampaignState
from .theory import System, Theory

ENDED_BY = {"target": "target_error", "trajectories": "trajectories", "seconds": "seconds", "joules": "joules"}
"""The field of the budget that ends a campaign, by how it ended."""


class Extension(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked: budgets, systems, couplings that every system visits first, who steers, where it runs and is.

    Couplings are those that people give, which `Theory.at` turns into values of the coordinate. `widen` lets the range
    grow to hold `couplings`; no visits are planned at the couplings of `remove` any more.
    """

    seconds: float | None = None
    trajectories: int | None = None
    target_error: float | None = None
    systems: tuple[System, ...] = ()
    couplings: tuple[float, ...] = ()
    widen: bool = False
    remove: tuple[float, ...] = ()
    checkpoints: str | None = None
    substrate: str | None = None
    cluster: str | None = None
    steerer: str | None = None

    @property
    def asks(self) -> bool:
        """Whether it asks for anything."""
        return self != Extension(widen=self.widen)

    @property
    def asks_for_more(self) -> bool:
        """Whether it asks for anything but another place to run, which a finished campaign does not need."""
        return self != Extension(widen=self.widen, substrate=self.substrate, cluster=self.cluster)


def system_of(name: str, text: str) -> System:
    """Return a system from text: its numbers."""
    wanted = "integers with commas between them"
    numbers = _numbers(name, text, wanted)
    if any(n != int(n) for n in numbers):
        raise SpecError(f"`{name}` must be {wanted}. Got {text}")
    return tuple(map(int, numbers))


def couplings_of(name: str, text: str) -> tuple[float, ...]:
    """Return couplings from text."""
    return tuple(_numbers(name, text, "numbers with commas between them"))


def _numbers(name: str, text: str, wanted: str) -> list[float]:
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = [inf]
    if not all(map(isfinite, found)):
        raise SpecError(f"`{name}` must be {wanted}. Got {text}")
    return found


def asked_beside(spec: CampaignSpec, more: Extension) -> CampaignSpec:
    """Return the spec with what was asked beside it."""
    budget = {name: getattr(more, name) for name in ("seconds", "trajectories", "target_error")}
    spec = _changed(spec, "budget", **{name: value for name, value in budget.items() if value is not None})
    if more.systems:
        spec = _of_systems(spec, more.systems, spec.theory.of)
    return _visiting(_placed(spec, more), more)


def extended(state: CampaignState, more: Extension) -> CampaignSpec:
    """Return the spec of a campaign that goes on: `seconds` and `trajectories` are added to their limits.

    A finished campaign without such a limit has them added to what was spent; one that has not ended has no such limit
    to extend. The limit that ended the campaign is lifted unless it is extended.
    """
    spec = state.spec
    changes: dict[str, Any] = {}
    if state.finished is not None and state.finished.stopped_by in ENDED_BY:
        changes[ENDED_BY[state.finished.stopped_by]] = None
    spent = {"seconds": state.elapsed(state.last_at), "trajectories": state.trajectories}
    for name, used in spent.items():
        if (added := getattr(more, name)) is not None:
            if not added > 0:
                raise SpecError(f"`{name}` must be positive. Got {added}")
            limit = getattr(spec.budget, name)
            if limit is None and state.finished is None and not spec.running.deterministic:
                others = [given for given in spent if getattr(spec.budget, given) is not None] or ["joules"]
                raise SpecError(
                    f"the campaign has no limit of {name} that could be extended. Got {added:g} more\n"
                    f"hint: what limits it is `budget.{others[0]}`"
                )
            # The last blocks may have taken more than the limit: an extension is never spent before it begins.
            changes[name] = (used if limit is None or limit + added <= used else limit) + added
    if more.trajectories is not None and changes["trajectories"] - state.trajectories < (
        least := spec.steering.shortest
    ):
        raise SpecError(
            f"`trajectories` must leave room for a visit, {least} updates of this campaign. "
            f"Got {more.trajectories}, which leaves {changes['trajectories'] - state.trajectories}"
        )
    if more.target_error is not None:
        changes["target_error"] = more.target_error
    left = {name: getattr(spec.budget, name) for name in ("seconds", "trajectories", "joules")} | changes
    if all(left[name] is None for name in ("seconds", "trajectories", "joules")):
        raise SpecError(
            "the campaign has spent its budget and needs more to go on\nhint: give --seconds or --trajectories as well"
        )
    spec = _changed(spec, "budget", **changes)
    if more.systems:
        spec = _with_systems(spec, more.systems)
    return _removed(_visiting(_placed(spec, more), more), state, more.remove)


def _with_systems(spec: CampaignSpec, added: tuple[System, ...]) -> CampaignSpec:
    if there := [system for system in added if system in spec.theory.systems]:
        raise SpecError(f"an added system must be a new one. Got {there[0]}, which is in the campaign already")
    if spec.ordering != AUTO and not ORDERINGS[spec.ordering].every_volume:
        raise SpecError(
            f"ordering {spec.ordering} does not run more systems\nhint: begin another campaign with --ordering C"
        )
    return _of_systems(spec, added, spec.theory.with_more)


def _of_systems(
    spec: CampaignSpec, systems: tuple[System, ...], change: Callable[[tuple[System, ...]], Theory]
) -> CampaignSpec:
    """Return the spec with other or more systems, as a method of its theory makes them."""
    theory = spec.theory
    lengths = sorted({len(system) for system in theory.systems})
    strange = [system for system in systems if len(system) not in lengths]
    numbers = (
        f"a {theory.words.system} has {' or '.join(map(str, lengths))} numbers. Got {strange[0]}" if strange else ""
    )
    with _theorys_code(theory, numbers):
        return msgspec.structs.replace(spec, theory=_sound(change(systems)))


def _within(theory: Theory, coordinates: Iterable[float]) -> Theory:
    """Return the theory over another range, that of these values."""
    wanted = tuple(coordinates)
    with _theorys_code(theory):
        return _sound(theory.within(min(wanted), max(wanted)))


def _coordinates(theory: Theory, couplings: Iterable[float]) -> tuple[float, ...]:
    """Return the values of the coordinate at couplings; raises where there is none."""
    found = []
    for coupling in couplings:
        try:
            at = float(theory.at(coupling))
        except (ArithmeticError, ValueError):
            at = nan
        if not isfinite(at):
            raise SpecError(f"`{theory.words.coupling}` must have a {theory.coordinate}, and {coupling:g} has none")
        found.append(at)
    return tuple(found)


def _sound(theory: Theory) -> Theory:
    """Return a theory whose fields have the types that it declares; raises where its code put others there."""
    return msgspec.convert(msgspec.to_builtins(theory), type(theory))


@contextmanager
def _theorys_code(theory: Theory, likely: str = "") -> Iterator[None]:
    """Make what the code of a theory raises an error of the spec; its own errors of that kind say enough.

    `likely` is what is probably wrong, where something seems to be.
    """
    try:
        yield
    except SpecError:
        raise
    except Exception as error:
        what = likely or f"{type(error).__name__}: {error}"
        raise SpecError(f"`[{theory.table()}]` cannot be changed so: {what}") from error


def _visiting(spec: CampaignSpec, more: Extension) -> CampaignSpec:
    """Return the spec with points that are visited first; those outside the range are refused, or widen it."""
    if not more.couplings:
        return spec
    theory, at = spec.theory, _coordinates(spec.theory, more.couplings)
    ends = sorted(map(theory.coupling, (theory.low, theory.high)))
    if not more.widen and (outside := [one for one in at if not spec.covers(one)]):
        raise SpecError(
            f"{theory.words.coupling} must be within the range of the campaign, {ends[0]:.5g} to {ends[1]:.5g}. "
            f"Got {theory.coupling(outside[0]):.5g}\nhint: widen (--widen) extends the range to it"
        )
    points = tuple(dict.fromkeys((*spec.steering.points, *at)))
    removed = tuple(one for one in spec.steering.removed if one not in at)
    return _over(spec, _within(theory, (theory.low, theory.high, *at)), points, removed)


def _removed(spec: CampaignSpec, state: CampaignState, couplings: tuple[float, ...]) -> CampaignSpec:
    """Return the spec without visits at some couplings; a range that was widened for them shrinks again."""
    if not couplings:
        return spec
    theory, first, at = spec.theory, state.opened.spec.theory, _coordinates(spec.theory, couplings)
    there = sorted({*spec.steering.points, *(chain.coordinate for chain in state.chains.values())})
    for one in at:
        if not spec.near(one, there):
            known = ", ".join(f"{theory.coupling(point):.5g}" for point in there) or "(none yet)"
            raise SpecError(
                f"a point that is removed must be one of the campaign, at {theory.words.coupling} {known}. "
                f"Got {theory.coupling(one):.5g}"
            )
    points = tuple(coordinate for coordinate in spec.steering.points if not spec.near(coordinate, at))
    removed = tuple(dict.fromkeys((*spec.steering.removed, *at)))
    return _over(spec, _within(theory, (first.low, first.high, *points)), points, removed)


def _over(spec: CampaignSpec, theory: Theory, points: tuple[float, ...], removed: tuple[float, ...]) -> CampaignSpec:
    """Return the spec over another range with other points: both at once, since points must be within the range."""
    steering = msgspec.structs.replace(spec.steering, points=points, removed=removed)
    return msgspec.structs.replace(spec, theory=theory, steering=steering)


def _placed(spec: CampaignSpec, more: Extension) -> CampaignSpec:
    """Return the spec with another steerer, and other places to run and for checkpoints."""
    running: dict[str, Any] = {name: getattr(more, name) for name in ("checkpoints", "substrate", "cluster")}
    running = {name: value for name, value in running.items() if value is not None}
    if more.substrate is not None:
        running["lanes"] = ()
    spec = _changed(spec, "running", **running)
    return spec if more.steerer is None else _changed(spec, "steering", steerer=more.steerer)


def _changed(spec: CampaignSpec, table: str, **changes: Any) -> CampaignSpec:
    return msgspec.structs.replace(spec, **{table: msgspec.structs.replace(getattr(spec, table), **changes)})
