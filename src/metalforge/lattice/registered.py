"""The observables of links (`core.observables`): each is registered once, with its column in every table.

A row has one number for each observable that was asked for. What it is called in rows, journals, checkpoints, CSV files
and reports, when it is measured and how it is averaged is said here and nowhere else:

    register(ChainObservable(name="link_trace", label="tr U", measure=lambda look: look.chain.field.link_trace()))
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from metalforge.core import observables as core
from metalforge.core.errors import SpecError

from .observables import Observables, SeaObservables, measure, wilson_loop, z3_projection

if TYPE_CHECKING:
    from .chain import Chain, UpdateInfo
    from .hmc import EnergyProbe, MidEnergy

THEORY = "lattice"


class Look:
    """A configuration and the update that led to it; what several observables need is computed once."""

    def __init__(self, chain: "Chain") -> None:
        self.chain = chain
        self.n_steps = chain.spec.hmc.n_steps
        """Steps of the trajectory, before what came of it tunes those of the next."""
        self.info: UpdateInfo | None = None
        self.delta_h_quarter: float | None = None
        """The energy violation at a quarter of the trajectory, where somebody looked."""

    @property
    def at_quarter(self) -> "EnergyProbe":
        """Looks at the energy violation at a quarter of the trajectory."""
        from .hmc import EnergyProbe

        def seen(energy: "MidEnergy") -> None:
            self.delta_h_quarter = energy.delta_h

        return EnergyProbe((0.25,), seen)

    @cached_property
    def gauge(self) -> Observables:
        """The plaquettes and the Polyakov loop."""
        return measure(self.chain.field)

    @cached_property
    def quarks(self) -> SeaObservables | None:
        """The condensate by noise vectors, addressed by the chain's step; None where none are drawn."""
        if self.chain.sea is None:
            return None
        seen = self.chain.sea.observe(self.gauge, **self.chain.address())
        return seen if isinstance(seen, SeaObservables) else None

    def of_update(self, name: str) -> float | None:
        """Return what the update says of itself; None where it has no such number."""
        value = getattr(self.info, name, None)
        return None if value is None else float(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainObservable(core.Observable):
    """A number that every update of a chain leaves, as a column.

    `of` links it is measured on a configuration, `of` update it tells how that came about. A chain has it if it has
    what it `needs`; a `standard` one is measured in every such chain, any other where it is asked for by name.
    """

    measure: Callable[[Look], float | None]
    of: Literal["links", "update"] = "links"
    needs: Literal["nothing", "trajectories", "sea"] = "nothing"
    standard: bool = False

    def fits(self, *, trajectories: bool, sea: bool) -> bool:
        """Return whether a chain of this kind has it."""
        return {"nothing": True, "trajectories": trajectories, "sea": sea}[self.needs]


def register(observable: ChainObservable) -> ChainObservable:
    """Make an observable known by its name, which no other may have."""
    return core.register_observable(THEORY, observable)


def named(names: Iterable[str]) -> tuple[ChainObservable, ...]:
    """Return observables by name."""
    return tuple(map(_of_chains, core.find_observables(THEORY, names)))


def _of_chains(found: core.Observable) -> ChainObservable:
    """Return an observable as one of chains: a plain one is measured on the links, in every phase."""
    if isinstance(found, ChainObservable):
        return found
    return ChainObservable(**{field.name: getattr(found, field.name) for field in fields(found)})


def _known() -> tuple[ChainObservable, ...]:
    return tuple(map(_of_chains, core.observables_of(THEORY).values()))


def standard(*, trajectories: bool, sea: bool, more: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the columns of a chain: those that every chain of this kind has, then `more`."""
    names = [o.name for o in _known() if o.standard and o.fits(trajectories=trajectories, sea=sea)]
    for observable in named(more):
        if not observable.fits(trajectories=trajectories, sea=sea):
            raise SpecError(f"`{observable.name}` needs {observable.needs}, which these chains do not have")
    return tuple(dict.fromkeys([*names, *more]))


def _whole(mean: float, error: float) -> str:
    return f"{mean:.0f}"


def _cg_of_one_solve(look: Look) -> float | None:
    total, sea = look.of_update("cg_iterations"), look.chain.sea
    # The count of solves starts anew with every trajectory, as that of iterations does.
    return None if total is None or sea is None else total / max(sea.inverter.solves, 1)


def _of_gauge(name: str, label: str = "", *, standard: bool = True) -> ChainObservable:
    return ChainObservable(
        name=name, label=label, measure=lambda look: float(getattr(look.gauge, name)), standard=standard
    )


def _of_quarks(name: str) -> ChainObservable:
    def seen(look: Look) -> float | None:
        return None if look.quarks is None else getattr(look.quarks, name)

    return ChainObservable(name=name, measure=seen, needs="sea", phases=("measure",), standard=True)


def _of_update(name: str, label: str = "", **more: Any) -> ChainObservable:
    usual: dict[str, Any] = {"measure": lambda look: look.of_update(name), "needs": "trajectories", "standard": True}
    return ChainObservable(name=name, label=label, of="update", **(usual | more))


for _observable in (
    _of_gauge("plaquette", "plaquette"),
    _of_gauge("plaquette_spatial"),
    _of_gauge("plaquette_temporal", standard=False),
    _of_gauge("polyakov_re"),
    _of_gauge("polyakov_im"),
    ChainObservable(name="polyakov_z3", label="Re L to Z3", measure=lambda look: z3_projection(look.gauge.polyakov)),
    ChainObservable(
        name="action_density",
        label="S/(beta V)",
        measure=lambda look: look.chain.action.energy(look.chain.field) / look.chain.field.volume,
    ),
    ChainObservable(
        name="wilson_loop",
        label="W(2,1)",
        measure=lambda look: wilson_loop(look.chain.field.to_links(), 2, 1),
    ),
    _of_update("delta_h", "exp(-dH)", transform=lambda delta_h: np.exp(-delta_h)),
    _of_update("accepted", "accepted", error=False, text=lambda mean, error: f"{mean:.0%}"),
    _of_update("delta_h_quarter", measure=lambda look: look.delta_h_quarter),
    _of_update("cg_iterations", "CG per solve", measure=_cg_of_one_solve, needs="sea", error=False, text=_whole),
    ChainObservable(name="cg_total", measure=lambda look: look.of_update("cg_iterations"), of="update", needs="sea"),
    # In a ladder (`exchange`) any replica may hold a coupling; its stream says which one it is.
    ChainObservable(name="replica", measure=lambda look: float(look.chain.spec.stream), of="update", error=False),
    _of_quarks("condensate"),
    _of_quarks("condensate_pairs"),
    _of_quarks("condensate_connected"),
    # Heads see the steps of every trajectory: those of a warm-up, which are tuned, must be known to read it again.
    _of_update(
        "n_steps",
        measure=lambda look: float(look.n_steps),
        phases=("warmup", "measure"),
        error=False,
        text=_whole,
    ),
):
    register(_observable)
