"""The Ising model in two dimensions, E = -sum s s' over neighbours on a torus, as a theory of its own in one file.

    metalforge scan examples/ising.toml

The peak of chi on L x L lies near T_c + a / L. Exactly, T_c = 2 / ln(1 + sqrt 2) = 2.26919 (L. Onsager, 1944).
"""

from collections.abc import Callable, Mapping, Sequence
from math import exp, prod
from typing import Self

import msgspec
import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from metalforge.campaign.theory import (
    Configuration,
    Floats,
    OrderParameter,
    Place,
    SizeLaw,
    System,
    Theory,
    TheoryWords,
    register_theory,
)
from metalforge.core.errors import SpecError


class IsingLaw(SizeLaw):
    """Peaks of chi lie at K_c - h / L, since xi ~ 1 / |K - K_c|; squares alone are on one line."""

    axis, holds_where, limit, height = "$1/L$", "L x L", "the infinite system", "$L^2$"

    def holds(self, system: System) -> bool:
        """Return whether it is a square."""
        return system[0] == system[1]


class Ising(Theory, frozen=True, kw_only=True, tag="ising"):
    """The Ising model: sizes of systems and a range of temperatures. Points differ in K = 1 / T."""

    sizes: tuple[tuple[int, int], ...] = ((16, 16), (32, 32))
    t_min: float = 2.1
    t_max: float = 2.7

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sizes or len(set(self.sizes)) < len(self.sizes) or min(map(min, self.sizes)) < 3:
            raise SpecError(f"`ising.sizes` wants different pairs of numbers, 3 or more each. Got {self.sizes}")
        if not 0 < self.t_min < self.t_max:
            raise SpecError(f"`ising.t_min` must be above 0 and below `t_max`. Got {self.t_min} and {self.t_max}")

    @property
    def words(self) -> TheoryWords:
        """K and |m| in tables and figures; people give temperatures."""
        return TheoryWords(
            coordinate="K",
            axis="K = 1/T",
            coupling="T",
            coupling_like="2.3,2.4",
            system="system",
            system_like="24,24",
            found="T_c",
            missing="T_c not located",
            error_of="on K_c",
            figure="Transition",
            shows=("\u27e8|m|\u27e9", "\u03c7"),
            columns=("K", "abs_m", "chi"),
            update="sweep",
        )

    order = OrderParameter("|m|", "|m|", "m^2", volume="L^2")
    result_name = "T_c"
    size_law = IsingLaw()

    @property
    def systems(self) -> tuple[System, ...]:
        """The sizes."""
        return self.sizes

    @property
    def low(self) -> float:
        """K at the highest temperature."""
        return 1 / self.t_max

    @property
    def high(self) -> float:
        """K at the lowest temperature."""
        return 1 / self.t_min

    def at(self, coupling: float) -> float:
        """Return K of a temperature."""
        return 1 / coupling

    def coupling(self, coordinate: float) -> float:
        """Return the temperature of K."""
        return 1 / coordinate

    def quoted(self, value: float, error: float) -> tuple[float, float]:
        """Return T_c = 1 / K_c with its error."""
        return 1 / value, error / value**2

    def of(self, systems: Sequence[System]) -> Self:
        """Return it with other sizes."""
        return msgspec.structs.replace(self, sizes=tuple(systems))

    def within(self, low: float, high: float) -> Self:
        """Return it with another range of K."""
        return msgspec.structs.replace(self, t_min=1 / high, t_max=1 / low)

    def columns(self) -> tuple[str, ...]:
        """Return the energy, -sum s s', and the magnetisation per site without its sign."""
        return "energy", "abs_m"

    def order_of(self, columns: Callable[[str], Floats]) -> Floats:
        """Return |m| in every row."""
        return columns("abs_m")

    def begin(self, place: Place, numbers: np.random.Generator) -> Configuration:
        """Return random spins for a hot start, else equal ones."""
        spins = numbers.integers(0, 2, place.system) * 2 - 1
        return {"spins": (spins if place.start == "hot" else np.ones_like(spins)).astype(np.int8)}

    def update(self, arrays: Configuration, place: Place, numbers: np.random.Generator) -> Mapping[str, float]:
        """Flip every cluster or not, by a coin (R. H. Swendsen and J.-S. Wang, Phys. Rev. Lett. 58 (1987) 86)."""
        spins = arrays["spins"]
        sites = np.arange(spins.size).reshape(spins.shape)
        bonds = []
        for axis in (0, 1):  # equal neighbours belong together with probability 1 - exp(-2 K)
            alike = spins == np.roll(spins, -1, axis)
            bound = alike & (numbers.random(spins.shape) < 1 - exp(-2 * place.at))
            bonds.append((sites[bound], np.roll(sites, -1, axis)[bound]))
        ends = tuple(np.concatenate(one) for one in zip(*bonds, strict=True))
        graph = coo_array((np.ones(ends[0].size, np.int8), ends), shape=(spins.size, spins.size))
        count, cluster = connected_components(graph, directed=False)
        spins *= (2 * numbers.integers(0, 2, count) - 1).astype(np.int8)[cluster].reshape(spins.shape)
        energy = -sum(int(np.sum(spins * np.roll(spins, -1, axis), dtype=np.int64)) for axis in (0, 1))
        return {"energy": float(energy), "abs_m": abs(float(spins.mean(dtype=np.float64)))}

    def variance_of_energy(self, system: System) -> float:
        """Return about the variance of E: the specific heat near the peak is 2 to 3 a site, in units of 1 / K^2."""
        return 12.0 * prod(system)


register_theory(Ising)
