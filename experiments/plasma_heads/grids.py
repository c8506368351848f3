"""The runs of a corpus of the plasma: state points by kappa and Gamma / Gamma_m, replicas of each.

The grids that come with the package are in `grids.toml`, by name. State points that train and those that
test are disjoint, and the two parts have seeds of their own. All runs of a grid have boxes of one size where kappa is
to stay hidden: a box that is as small as its kappa allows would tell it.
"""

from collections.abc import Iterator
from importlib.resources import files

import msgspec

from metalforge.core.errors import SpecError, find
from metalforge.native.engine import Precision
from metalforge.plasma.references import melting_gamma

from .corpus import PlasmaEntry

WINDOW = 0.05
"""The part of a run that heads see."""


class PlasmaGrid(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Runs at one kappa; couplings are given as Gamma / Gamma_m."""

    kappa: float
    particles: int
    train: tuple[float, ...]
    test: tuple[float, ...]
    time: float
    warmup: float = 100.0
    replicas: int = 4
    precision: Precision = "f64"
    """Of pair forces."""

    def __post_init__(self) -> None:
        if set(self.train) & set(self.test) or not self.train or not self.test:
            raise SpecError(f"a grid wants couplings to train and others to test. Got {self.train} and {self.test}")


_GRIDS = msgspec.toml.decode(
    files(__package__).joinpath("grids.toml").read_bytes(),
    type=dict[str, tuple[PlasmaGrid, ...]],
)
PLASMA_GRIDS = tuple(_GRIDS)


def plasma_entries(grid: str, *, seed: int = 2026, part: str = "all") -> Iterator[PlasmaEntry]:
    """Give every run of a part of a grid, each with a stream that does not depend on what is asked for."""
    stream = 0
    for one in find("grid of plasma runs", grid, _GRIDS):
        for of, ratios in (("train", one.train), ("test", one.test)):
            for ratio in ratios:
                for replica in range(one.replicas):
                    if part in (of, "all"):
                        yield PlasmaEntry(
                            part=of,  # type: ignore[arg-type]
                            gamma=float(f"{ratio * melting_gamma(one.kappa):.4g}"),
                            kappa=one.kappa,
                            particles=one.particles,
                            seed=seed + (of == "test"),
                            stream=stream,
                            warmup=one.warmup,
                            precision=one.precision,
                            window=WINDOW * one.time,
                            time=one.time,
                            shuffled=of == "test" and replica == 0,
                        )
                    stream += 1
