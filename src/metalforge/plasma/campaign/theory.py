"""The Yukawa plasma at one screening: the table `[plasma]`. Systems are boxes of N particles, points are ln Gamma.

An update is a segment of a trajectory, a whole number of the engine's blocks. What NVE finds is another Gamma than the
one a warm-up aimed at: points are where they aimed, fits are made at what was measured.
"""

from collections.abc import Sequence
from math import exp, log
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

import msgspec

from metalforge.campaign import OrderParameter, Start, System, Target, Theory, TheoryWords, WideWork
from metalforge.core import SpecError

if TYPE_CHECKING:
    from metalforge.campaign import CampaignSpec, ChainLog, PointBatch, PointChain, Report, Tools
    from metalforge.plasma.spec import PlasmaSpec  # loads what lattices do not need

    from .analysis import PlasmaAnalysis

ORDERS = {
    "map": OrderParameter("eta*", r"\eta^*", r"\eta^{*2}"),
    "freezing": OrderParameter("|rho_k|", r"|\rho_k|", r"|\rho_k|^2"),
}


class Plasma(Theory, frozen=True, kw_only=True, tag="plasma"):
    """The theory: screening, boxes, range of the coupling, what is looked for, and how long an update is."""

    kappa: float = 1.0
    particles: tuple[int, ...] = (1500,)
    gamma_min: float = 10.0
    gamma_max: float = 180.0
    look_for: Literal["map", "freezing"] = "map"
    segment: float = 0.0
    dt: float = 0.0
    tol: float = 1e-4
    precision: Literal["f64", "f32"] = "f64"

    coordinate: ClassVar[str] = "ln Gamma"
    """The logarithm of the coupling that a warm-up aims at."""
    sums_matter: ClassVar[bool] = True
    """Trajectories are chaotic: the last bit of a force decides where particles are soon."""
    batches: ClassVar[bool] = True
    update_is: ClassVar[str] = "molecular dynamics"
    why_no_cards: ClassVar[str] = ""
    wide: ClassVar[WideWork] = WideWork(1, 16, visit=1)  # an update is thousands of steps

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.particles or len(set(self.particles)) < len(self.particles):
            raise SpecError(f"`plasma.particles` wants boxes that differ, at least one. Got {self.particles}")
        if not 0 < self.gamma_min < self.gamma_max:
            raise SpecError(
                f"`plasma.gamma_min` must be positive and below `gamma_max`. Got {self.gamma_min} and {self.gamma_max}"
            )
        for dims in self.systems:
            for at in (self.low, self.high):
                self.trajectory(dims, at)
        if not (self.segment == 0 or 10 <= self.segment <= 1e5):
            raise SpecError(f"`plasma.segment` must be from 10 to 1e5, in 1/omega_p, or 0. Got {self.segment}")

    @property
    def words(self) -> TheoryWords:
        """Transport along Gamma, or where it freezes."""
        maps = self.target == "curve"
        return TheoryWords(
            coordinate="ln \u0393",
            axis="ln \u0393, as measured",
            coupling="\u0393",
            coupling_like="80,160",
            system="box",
            system_like="500",
            found="D*, \u03b7*" if maps else "\u0393m",
            missing="no curve yet" if maps else "freezing not located",
            error_of="of the curve" if maps else "on ln Gamma_m",
            figure="Transport" if maps else "Freezing",
            shows=("D*", "\u03b7*") if maps else ("rate of the crystal's order [10\u207b\u2074 \u03c9p]", ""),
            columns=("ln_gamma", "D", "eta") if maps else ("ln_gamma", "rate_1e-4", ""),
            chain="trajectory",
            chains="Trajectories",
            update="segment",
        )

    def at(self, coupling: float) -> float:
        """Return ln Gamma."""
        if not coupling > 0:
            raise SpecError(f"Gamma must be positive. Got {coupling:g}")
        return log(float(f"{coupling:.10g}"))

    def of(self, systems: Sequence[System]) -> Self:
        """Return other boxes."""
        return msgspec.structs.replace(self, particles=tuple(map(particles_of, systems)))

    def within(self, low: float, high: float) -> Self:
        """Return another range of Gamma."""
        return msgspec.structs.replace(self, gamma_min=gamma_at(low), gamma_max=gamma_at(high))

    def coupling(self, coordinate: float) -> float:
        """Return Gamma."""
        return gamma_at(coordinate)

    @property
    def target(self) -> Target:  # type: ignore[override]
        """D* and eta* along Gamma, or where it freezes."""
        return "curve" if self.look_for == "map" else "crossing"

    @property
    def steerer(self) -> str:  # type: ignore[override]
        """Who places visits unless the spec says otherwise."""
        return "curve" if self.look_for == "map" else "bisection"

    @property
    def order(self) -> OrderParameter:
        """What is looked at, as it is written."""
        return ORDERS[self.look_for]

    def quoted(self, value: float, error: float) -> tuple[float, float]:
        """Return Gamma_m with its error, of ln Gamma_m."""
        return exp(value), exp(value) * error

    @property
    def result_name(self) -> str:
        """The coupling of freezing, or both numbers along the curve."""
        return "Gamma_m" if self.look_for == "freezing" else "D*, eta*"

    @property
    def systems(self) -> tuple[System, ...]:
        """The boxes."""
        return tuple((n,) for n in self.particles)

    @property
    def low(self) -> float:
        """The weakest coupling, as a logarithm."""
        return log(self.gamma_min)

    @property
    def high(self) -> float:
        """The strongest coupling, as a logarithm."""
        return log(self.gamma_max)

    @property
    def update_time(self) -> float:
        """Of an update, in 1/omega_p."""
        from metalforge.plasma.trajectory import segment_time

        return segment_time(self.trajectory(self.systems[0], self.low), self.segment)

    def columns(self) -> tuple[str, ...]:
        """Return what a segment is summed up by."""
        from metalforge.plasma.trajectory import columns_of

        return columns_of(self.kappa, self.update_time)

    def start_of(self, number: int) -> Start:
        """Return the start of every trajectory: a fluid, or half a crystal where it is to grow or to melt."""
        return "random" if self.look_for == "map" else "two-phase"

    def check(self, spec: "CampaignSpec") -> None:
        """Raise where the warm-up cannot make the start."""
        from metalforge.plasma.two_phase import require_stages

        if self.start_of(0) == "two-phase":
            require_stages(spec.warmup.longest)

    def point(self, known: "ChainLog", tools: "Tools", checkpoint: Path | None = None) -> "PointChain":
        """Return a trajectory."""
        from .point import PlasmaPoint

        return PlasmaPoint(known, tools, checkpoint)

    def batch(self, members: Sequence[Any]) -> "PointBatch":
        """Return room for trajectories of one shape on one engine."""
        from .batch import ParticlesTogether

        return ParticlesTogether(members)

    @property
    def analysis(self) -> "PlasmaAnalysis":
        """Segments give a curve or a crossing."""
        from .analysis import PlasmaAnalysis

        return PlasmaAnalysis()

    @property
    def report(self) -> "Report":
        """Transport and freezing."""
        from .report import FreezingReport, TransportReport

        return TransportReport() if self.look_for == "map" else FreezingReport()

    def bytes_of(self, dims: System) -> int:
        """Return what the particles of a box, their lists and the frames of a block take."""
        from metalforge.plasma.trajectory import bytes_of

        return bytes_of(self.trajectory(dims, self.low))

    def trajectory(
        self, dims: System, at: float, *, seed: int = 1, stream: int = 0, start: Start | None = None
    ) -> "PlasmaSpec":
        """Return the trajectory of one point."""
        from metalforge.plasma.spec import PlasmaSpec

        return PlasmaSpec(
            gamma=gamma_at(at),
            kappa=self.kappa,
            particles=particles_of(dims),
            dt=self.dt,
            seed=seed,
            stream=stream,
            start=cast("Any", start or self.start_of(0)),
            precision=self.precision,
            tol=self.tol,
        )


def gamma_at(coordinate: float) -> float:
    """Return the coupling at a value of the coordinate, to ten digits: what people typed comes back."""
    return float(f"{exp(coordinate):.10g}")


def particles_of(dims: System) -> int:
    """Return the name of a box as the number of its particles."""
    if len(dims) != 1:
        raise SpecError(f"a box has a number of particles, as in 500. Got {','.join(map(str, dims))}")
    return dims[0]
