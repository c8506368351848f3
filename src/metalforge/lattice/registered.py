"""The observables of links (`core.observables`): each is registered once, with its column in every table.

A row has one number for each observable that was asked for. What it is called in rows, journals, checkpoints, CSV files
and reports, when it is measured and how it is averaged is said here and nowhere else. Another one is registered alike:

    register_observable("lattice", Observable(name="link_trace", measure=lambda look: look.chain.field.link_trace()))
"""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from metalforge.core import Observable, SpecError, find_observables, register_observable

from .observables import Observables, SeaObservables, measure, wilson_loop, z3_projection

if TYPE_CHECKING:
    from .chain import Chain, UpdateInfo
    from .hmc import EnergyProbe, MidEnergy

THEORY = "lattice"
STANDARD: dict[str, Literal["nothing", "trajectories", "sea"]] = {
    **dict.fromkeys(("plaquette", "plaquette_spatial", "polyakov_re", "polyakov_im"), "nothing"),
    **dict.fromkeys(("delta_h", "accepted", "delta_h_quarter"), "trajectories"),
    **dict.fromkeys(("cg_iterations", "condensate", "condensate_pairs", "condensate_connected"), "sea"),
    "n_steps": "trajectories",
}
"""The columns that every chain has which has what they need; any other is measured where it is asked for by name."""
OF_UPDATES = {"delta_h", "accepted", "delta_h_quarter", "cg_iterations", "cg_total", "replica", "n_steps"}
"""Those that tell how a configuration came about, where others are measured on its links."""


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


def named(names: Sequence[str]) -> tuple[Observable, ...]:
    """Return observables by name."""
    return find_observables(THEORY, names)


def standard(*, trajectories: bool, sea: bool, more: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the columns of a chain: those that every chain of this kind has, then `more`."""
    has = {"nothing": True, "trajectories": trajectories, "sea": sea}
    for observable in named(more):
        if not has[needs := (STANDARD | {"cg_total": "sea"}).get(observable.name, "nothing")]:
            raise SpecError(f"`{observable.name}` needs {needs}, which these chains do not have")
    return tuple(dict.fromkeys([*(name for name, needs in STANDARD.items() if has[needs]), *more]))


def _whole(mean: float, error: float) -> str:
    return f"{mean:.0f}"


def _cg_of_one_solve(look: Look) -> float | None:
    total, sea = look.of_update("cg_iterations"), look.chain.sea
    # The count of solves starts anew with every trajectory, as that of iterations does.
    return None if total is None or sea is None else total / max(sea.inverter.solves, 1)


def _of_gauge(name: str, label: str = "") -> Observable:
    return Observable(name=name, label=label, measure=lambda look: float(getattr(look.gauge, name)))


def _of_quarks(name: str) -> Observable:
    def seen(look: Look) -> float | None:
        return None if look.quarks is None else getattr(look.quarks, name)

    return Observable(name=name, measure=seen, phases=("measure",))


def _of_update(name: str, label: str = "", **more: Any) -> Observable:
    return Observable(name=name, label=label, **({"measure": lambda look: look.of_update(name)} | more))


for _observable in (
    _of_gauge("plaquette", "plaquette"),
    _of_gauge("plaquette_spatial"),
    _of_gauge("plaquette_temporal"),
    _of_gauge("polyakov_re"),
    _of_gauge("polyakov_im"),
    Observable(name="polyakov_z3", label="Re L to Z3", measure=lambda look: z3_projection(look.gauge.polyakov)),
    Observable(
        name="action_density",
        label="S/(beta V)",
        measure=lambda look: look.chain.action.energy(look.chain.field) / look.chain.field.volume,
    ),
    Observable(
        name="wilson_loop",
        label="W(2,1)",
        measure=lambda look: wilson_loop(look.chain.field.to_links(), 2, 1),
    ),
    _of_update("delta_h", "exp(-dH)", transform=lambda delta_h: np.exp(-delta_h)),
    _of_update("accepted", "accepted", error=False, text=lambda mean, error: f"{mean:.0%}"),
    _of_update("delta_h_quarter", measure=lambda look: look.delta_h_quarter),
    _of_update("cg_iterations", "CG per solve", measure=_cg_of_one_solve, error=False, text=_whole),
    _of_update("cg_total", measure=lambda look: look.of_update("cg_iterations")),
    # In a ladder (`exchange`) any replica may hold a coupling; its stream says which one it is.
    _of_update("replica", measure=lambda look: float(look.chain.spec.stream), error=False),
    _of_quarks("condensate"),
    _of_quarks("condensate_pairs"),
    _of_quarks("condensate_connected"),
    # Heads see the steps of every trajectory: those of a warm-up, which are tuned, must be known to read it again.
    _of_update(
        "n_steps", measure=lambda look: float(look.n_steps), phases=("warmup", "measure"), error=False, text=_whole
    ),
):
    register_observable(THEORY, _observable)
