"""The gauge field and the momenta of its links: buffers on an engine, with copies in and out in file order."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Self, TypedDict

import numpy as np
from numpy.typing import NDArray

from metalforge.core import SpecError, require_one_of
from metalforge.native import Buffer, Dims, Engine, Grid, Precision, check_dims, cpu_engine

from .actions import WILSON, Action

ALL_LINKS = 255


class Address(TypedDict):
    """Where random numbers are: those of one step of the chain (seed, stream)."""

    seed: int
    stream: int
    step: int


def grid_of(engine: Engine, dims: Sequence[int], precision: Precision) -> Grid:
    """Return an engine's grid of a lattice that it can have."""
    require_one_of("f64", "f32", precision=precision)
    return engine.grid(check_dims(dims), precision)


class OnGrid:
    """What fields and operators have in common: they are on a lattice, in one precision, on an engine."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.engine: Engine = grid.engine
        self.dims: Dims = grid.dims
        self.precision: Precision = grid.precision
        self.volume: int = math.prod(grid.dims)

    def meets(self, other: "OnGrid") -> bool:
        """Whether another one has the same lattice, precision and engine, so that kernels take both."""
        mine, its = self.grid, other.grid
        return mine is its or (
            (mine.dims, mine.precision, mine.engine.name) == (its.dims, its.precision, its.engine.name)
        )


class GaugeField(OnGrid):
    """SU(3) links on a periodic lattice of `dims` = (Nx, Ny, Nz, Nt), in single or double precision.

    On `engine`, or on the process's CPU engine with so many `threads`; None means the package default.
    """

    def __init__(
        self,
        dims: Sequence[int],
        *,
        precision: Precision = "f64",
        threads: int | None = None,
        engine: Engine | None = None,
    ) -> None:
        super().__init__(grid_of(engine or cpu_engine(threads=threads), dims, precision))
        self.links: Buffer = self.grid.new("links")

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self).from_links, precision=self.precision, engine=self.engine), (self.to_links(),)

    @property
    def spatial_volume(self) -> int:
        """Nx Ny Nz."""
        return self.volume // self.dims[3]

    @classmethod
    def hot(cls, dims: Sequence[int], *, seed: int, stream: int = 0, **options: Any) -> Self:
        """Return links drawn from the Haar measure."""
        field = cls(dims, **options)
        field.grid.set_hot(field.links, seed, stream, 0)
        return field

    @classmethod
    def from_links(cls, links: NDArray[np.complexfloating[Any, Any]], **options: Any) -> Self:
        """Return a field from host links of shape (Nt, Nz, Ny, Nx, 4, 3, 3)."""
        links = np.asarray(links)
        if links.ndim != 7 or links.shape[4:] != (4, 3, 3):
            raise SpecError(f"`links` must have shape (Nt, Nz, Ny, Nx, 4, 3, 3). Got {links.shape}")
        field = cls(links.shape[3::-1], **options)
        field.grid.upload("links", field.links, links.astype(np.complex128, copy=False))
        return field

    def to_links(self) -> NDArray[np.complex128]:
        """Return the links in file order, shape (Nt, Nz, Ny, Nx, 4, 3, 3)."""
        return self.grid.download("links", self.links)

    def copy(self) -> Self:
        """Return an independent copy."""
        other = type(self)(self.dims, precision=self.precision, engine=self.engine)
        other.assign(self)
        return other

    def assign(self, other: "GaugeField") -> None:
        """Take the links of another field of the same lattice, precision and engine."""
        self.grid.assign(self.links, other.links)

    def distance(self, other: "GaugeField") -> float:
        """Return the largest difference between a real of these links and of another field's."""
        return self.grid.distance(self.links, other.links)

    def plaquette_sums(self) -> tuple[float, float]:
        """Return sum_p Re tr U_p / 3 over spatial and over temporal plaquettes, in double precision."""
        return self.grid.plaquette_sums(self.links)

    def action(self, beta: float, action: Action = WILSON) -> float:
        """Return S; by default the Wilson action beta sum_p (1 - Re tr U_p / 3)."""
        return beta * action.energy(self)

    def polyakov(self) -> complex:
        """Return the Polyakov loop tr / 3, averaged over space."""
        return self.grid.polyakov(self.links) / self.spatial_volume

    def clover(self) -> tuple[float, float]:
        """Return the energy density E (mean over sites) and the topological charge Q from the clover field strength."""
        energy, charge = self.grid.clover_sums(self.links)
        return energy / self.volume, charge

    def off_group(self, scratch: "GaugeField") -> float:
        """Return how far the links are off SU(3): the largest difference to their projection, made in `scratch`."""
        scratch.assign(self)
        scratch.reunitarise()
        return self.grid.distance(self.links, scratch.links, scratch.links)

    def reunitarise(self) -> None:
        """Project every link back to SU(3); for links that are off by rounding."""
        self.grid.reunitarise(self.links)

    def heatbath(self, beta: float, *, seed: int, stream: int, step: int, selection: int = ALL_LINKS) -> None:
        """Update every link once by the SU(2) subgroup heat bath.

        `selection` restricts it: bit 2 mu + parity stands for the links in direction mu at sites of that parity.
        """
        if not (math.isfinite(beta) and beta >= 0):
            raise SpecError(f"`beta` must be a finite number >= 0. Got {beta}")
        self.grid.heatbath(self.links, beta, seed, stream, step, selection)

    def overrelax(self, *, selection: int = ALL_LINKS) -> None:
        """Update every link once by microcanonical overrelaxation; the action does not change."""
        self.grid.overrelax(self.links, selection)


class Momenta(OnGrid):
    """Eight reals per link, conjugate to the links of one field."""

    def __init__(self, field: GaugeField) -> None:
        super().__init__(field.grid)
        self._field = field
        self.values: Buffer = self.grid.new("momenta")

    def assign(self, other: "Momenta") -> None:
        """Take the values of others of the same lattice, precision and engine."""
        self.grid.assign(self.values, other.values)

    def refresh(self, *, seed: int, stream: int, step: int) -> None:
        """Draw every component from the standard normal distribution."""
        self.grid.refresh_momenta(self.values, seed, stream, step)

    def kinetic(self) -> float:
        """Return sum pi_a^2 / 2 in double precision."""
        return self.grid.kinetic(self.values)

    def evolve(self, beta: float, stages: NDArray[np.float64], action: Action = WILSON) -> None:
        """Walk the stages of an integrator: links and momenta move together."""
        self.grid.evolve(self._field.links, self.values, beta, stages, action.kernel)

    def kick(self, coefficient: float, *, keep: float = 1.0, action: Action = WILSON) -> None:
        """Set pi = keep * pi - coefficient * dS/dw, with S at beta = 1."""
        self.grid.kick_momenta(self._field.links, self.values, keep, coefficient, action.kernel)

    def move_links(self, eps: float) -> None:
        """Move the links by exp(i eps pi_a T_a)."""
        self.grid.move_links(self._field.links, self.values, eps)
