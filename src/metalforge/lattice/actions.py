"""Gauge actions S = beta E: what kernels are told of one, which updates are right for it, and what reweighting needs.

A new combination of loops that kernels have is an entry of `ACTIONS`; new loops are a header beside
`native/rectangle.hpp`, its line in `native/bindings/actions.hpp`, and an entry:

    ACTIONS["iwasaki"] = Action(name="iwasaki", loops="rectangle", coefficients=(-0.331,))
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from metalforge.core import SpecError, find

if TYPE_CHECKING:
    from metalforge.native import ActionKernel

    from .field import GaugeField


@dataclass(frozen=True, kw_only=True)
class Action:
    """A gauge action by the name that specs call it.

    `loops` names the kernels and `coefficients` are theirs. `sweeps` says whether links of one direction and parity
    share no loop: only then are heat bath and overrelaxation right. Reweighting in beta reads `variable`, a column of
    the rows of a chain. `formula` is for reports: E, and what it is called.
    """

    name: str
    loops: str
    coefficients: tuple[float, ...] = ()
    formula: str = ""
    sweeps: bool = False
    variable: str = "action_density"

    @cached_property
    def kernel(self) -> "ActionKernel":
        """What engines take; plain plaquettes are None."""
        return None if self.loops == "wilson" else (self.loops, np.array(self.coefficients, np.float64))

    def energy(self, field: "GaugeField") -> float:
        """Return E = S / beta of a field, a sum of doubles."""
        if self.kernel is None:
            return 6 * field.volume - sum(field.plaquette_sums())
        return field.grid.action_energy(field.links, self.kernel)

    def energy_of(self, value: Any, volume: int) -> Any:
        """Return E of configurations by the `variable` that was measured on them: a number, or an array of them."""
        return 6 * volume * (1 - value) if self.variable == "plaquette" else volume * value

    def check_sweeps(self, wanted: str) -> None:
        """Raise where sweeps over links of one parity would be wrong."""
        if not self.sweeps:
            raise SpecError(
                f"{wanted} needs an action whose links of one parity share no loop. Got action `{self.name}`"
                "\nhint: choose the algorithm hmc"
            )


WILSON = Action(
    name="wilson",
    loops="wilson",
    sweeps=True,
    variable="plaquette",
    formula="sum_p (1 - Re tr U_p / 3) (Wilson's action)",
)
"""Reweighting reads E = 6 V (1 - P) off the plaquette."""

SYMANZIK = Action(
    name="symanzik",
    loops="rectangle",
    coefficients=(-1 / 12,),
    formula="5/3 sum_p (1 - Re tr U_p / 3) - 1/12 sum_r (1 - Re tr U_r / 3), r the 1 x 2 rectangles of both "
    "orientations (Symanzik's action at tree level)",
)
ACTIONS = {one.name: one for one in (WILSON, SYMANZIK)}


def action(name: str) -> Action:
    """Return an action by its name."""
    return find("action", name, ACTIONS)
