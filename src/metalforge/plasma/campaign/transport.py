r"""D* and eta* from the rows of trajectories: at each coupling with errors, and along ln Gamma as smooth curves.

All trajectories that aimed at one coupling are taken together (`plasma.transport` has the estimators and their errors);
what they measured, not where they aimed, is the Gamma of their numbers.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.campaign import ERROR_ITEM, Evidence, PlannedPoints, SmoothCurve, at_least, at_most, level_errors
from metalforge.core import Observation

if TYPE_CHECKING:
    from metalforge.plasma.spec import PlasmaSpec

Floats = NDArray[np.float64]
FEWEST_SEGMENTS = 4
"""Below which nothing is said of a coupling: a jackknife of fewer knows no error."""
GRID = 61
"""Places at which a curve is given."""
MOST_DRIFT, MOST_PULL, MOST_OFF, MOST_BRAGG, FEWEST_TO_QUOTE = 2e-3, 4.0, 0.1, 10.0, 16
"""What the evidence needs: drift of the energy over a trajectory in kT a particle; errors by which halves of a
trajectory, or a point and the curve, may differ; how far ln Gamma may be from where it was aimed at; |rho_k|^2 / N of a
wave vector over all segments, which is 3 where a fluid freezes; segments of a coupling."""


class SegmentRows(NamedTuple):
    """The measured segments of one trajectory, by column; `at` is the ln Gamma that it was aimed at."""

    chain: str
    at: float
    spec: "PlasmaSpec"
    segment: float
    columns: Mapping[str, Floats]
    cost: float
    """Atom-steps so far, warm-up too."""

    @property
    def segments(self) -> int:
        """How many; none where a trajectory has not begun."""
        return len(self.columns.get("kinetic", ()))


class PointTransport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all trajectories at one coupling say: D_N is that of the box, D without its finite-size error."""

    at: float
    gamma: float
    gamma_error: float
    u_over_gamma: float
    diffusion_box: float
    diffusion: float
    diffusion_error: float
    viscosity: float
    viscosity_error: float
    segments: int
    trajectories: int
    cost: float

    @property
    def abscissa(self) -> float:
        """Ln Gamma as measured."""
        return math.log(self.gamma)


class TransportCurve(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """ln D* and ln eta* along ln Gamma with one standard deviation; `errors` are the rms of each over the range."""

    at: tuple[float, ...]
    log_diffusion: tuple[float, ...]
    log_diffusion_error: tuple[float, ...]
    log_viscosity: tuple[float, ...]
    log_viscosity_error: tuple[float, ...]
    errors: tuple[float, float]

    @property
    def error(self) -> float:
        """The larger of the two, as part of the value: what a target is for."""
        return max(self.errors)


class TransportFinding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the trajectories of one box say of its transport: points, the curve through them, the evidence."""

    points: tuple[PointTransport, ...]
    curve: TransportCurve | None
    evidence: tuple[Evidence, ...]

    @property
    def established(self) -> bool:
        """Whether the curve may be quoted."""
        return self.curve is not None and all(item.holds for item in self.evidence)

    @property
    def value(self) -> None:
        """A curve has no place."""
        return None

    @property
    def error(self) -> float | None:
        """The larger error of the two curves, once there are some."""
        return None if self.curve is None else self.curve.error

    @property
    def said(self) -> str:
        """The curve's errors in words."""
        if self.curve is None:
            return "fewer than three couplings have segments enough for a curve"
        of_d, of_eta = self.curve.errors
        return f"D* to {of_d:.2%}, eta* to {of_eta:.2%} on the mean over ln Gamma"


def transport_of(rows: Sequence[SegmentRows]) -> PointTransport | None:
    """Return what trajectories at one coupling say together; None while segments are too few, or have no numbers."""
    from metalforge.plasma.observables import energy_tail
    from metalforge.plasma.trajectory import segments_from
    from metalforge.plasma.transport import transport

    count = sum(one.segments for one in rows)
    if count < FEWEST_SEGMENTS:
        return None
    spec = rows[0].spec
    found = transport(spec, [segments_from(one.columns, one.segment) for one in rows])
    gamma, whole, eta = found.gamma_measured, found.diffusion_infinite, found.viscosity
    if not (whole.mean > 0 and eta.mean > 0) or not (gamma.error and whole.error and eta.error):
        return None
    phi = float(np.concatenate([one.columns["phi"] for one in rows]).mean()) / spec.particles
    return PointTransport(
        at=rows[0].at,
        gamma=gamma.mean,
        gamma_error=gamma.error,
        u_over_gamma=phi + energy_tail(spec),
        diffusion_box=found.diffusion.mean,
        diffusion=whole.mean,
        diffusion_error=whole.error,
        viscosity=eta.mean,
        viscosity_error=eta.error,
        segments=count,
        trajectories=len(rows),
        cost=sum(one.cost for one in rows),
    )


def observed_transport(rows: SegmentRows) -> Observation | None:
    """Return ln eta*, and ln D* besides, of one trajectory, where it was aimed at; None while it is too short."""
    found = transport_of([rows])
    if found is None:
        return None
    return Observation(
        coordinate=found.at,
        value=math.log(found.viscosity),
        error=found.viscosity_error / found.viscosity,
        cost=found.cost,
        id=rows.chain,
        more=((math.log(found.diffusion), found.diffusion_error / found.diffusion),),
    )


def curve_of(points: Sequence[PointTransport], low: float, high: float) -> TransportCurve | None:
    """Return smooth curves through the points, at their measured couplings; None for fewer than three."""
    if len(points) < 3:
        return None
    at = np.linspace(low, high, GRID)
    x = (np.array([point.abscissa for point in points]) - low) / (high - low)

    diffusion, viscosity = _smooth(points, x)
    (log_d, of_d), (log_eta, of_eta) = (curve.at(np.linspace(0, 1, GRID)) for curve in (diffusion, viscosity))
    return TransportCurve(
        at=tuple(at.tolist()),
        log_diffusion=tuple(log_d.tolist()),
        log_diffusion_error=tuple(of_d.tolist()),
        log_viscosity=tuple(log_eta.tolist()),
        log_viscosity_error=tuple(of_eta.tolist()),
        errors=(float(np.sqrt(np.mean(of_d**2))), float(np.sqrt(np.mean(of_eta**2)))),
    )


def _smooth(points: Sequence[PointTransport], x: Floats) -> tuple[SmoothCurve, SmoothCurve]:
    """Return the curves of ln D* and ln eta* through points at x."""
    work = np.array([point.segments for point in points], np.float64)
    of_both = [(p.diffusion, p.diffusion_error, p.viscosity, p.viscosity_error) for p in points]
    d, d_error, eta, eta_error = np.array(of_both).T
    return (
        SmoothCurve(x, np.log(d), level_errors(x, d_error / d, work)),
        SmoothCurve(x, np.log(eta), level_errors(x, eta_error / eta, work)),
    )


def find_transport(
    rows: Sequence[SegmentRows], plan: PlannedPoints, low: float, high: float, target: float | None
) -> TransportFinding:
    """Return the points, the curve and the evidence for it."""
    aimed: dict[float, list[SegmentRows]] = {}
    for one in sorted(rows, key=lambda r: (r.at, r.chain)):
        aimed.setdefault(one.at, []).append(one)
    points = tuple(found for group in aimed.values() if (found := transport_of(group)) is not None)
    curve = curve_of(points, low, high)
    return TransportFinding(
        points=points, curve=curve, evidence=_evidence(rows, points, curve, plan, low, high, target)
    )


def drift_of(rows: SegmentRows) -> float:
    """Return how far the energy of a trajectory drifts over its length, in kT a particle: the slope times the time."""
    energy = (rows.columns["kinetic"] + rows.columns["potential"]) / rows.spec.particles
    if len(energy) < 2:
        return 0.0
    kt = 2 / 3 * float(rows.columns["kinetic"].mean()) / rows.spec.particles
    centred = np.arange(len(energy)) - (len(energy) - 1) / 2
    return abs(float(centred @ energy / (centred @ centred))) * len(energy) / kt


def _halves(rows: SegmentRows) -> float:
    """Return by how many errors the temperatures of the two halves of a trajectory differ."""
    kinetic, half = rows.columns["kinetic"], rows.segments // 2
    if half < 3:
        return 0.0
    one, two = kinetic[:half], kinetic[-half:]
    error = math.hypot(*(float(part.std(ddof=1)) / math.sqrt(half) for part in (one, two)))
    return abs(float(one.mean() - two.mean())) / max(error, 1e-300)


def _evidence(
    rows: Sequence[SegmentRows],
    points: Sequence[PointTransport],
    curve: TransportCurve | None,
    plan: PlannedPoints,
    low: float,
    high: float,
    target: float | None,
) -> tuple[Evidence, ...]:
    items = [at_least("points visited", plan.visited, plan.points, "some first points have no complete visit yet")]
    if not rows or curve is None:
        text = "three couplings with segments enough"
        return (*items, Evidence(name="curve", holds=False, value=0.0, needed=1.0, text=text))
    worst = max(rows, key=_halves)
    drifts = max(rows, key=drift_of)
    brightest = max(rows, key=lambda r: float(r.columns["bragg"].mean()))
    reach = high - low
    x = (np.array([point.abscissa for point in points]) - low) / reach
    pulls = [curve.pulls() for curve in _smooth(points, x)]
    items += [
        at_most("equilibrated", _halves(worst), MOST_PULL, f"the temperatures of the halves of {worst.chain} differ"),
        at_most("energy drift [kT]", drift_of(drifts), MOST_DRIFT, f"of {drifts.chain}: a smaller `plasma.dt`"),
        at_most(
            "fluid, not crystal",
            float(brightest.columns["bragg"].mean()),
            MOST_BRAGG,
            f"a wave vector of {brightest.chain} stands out as no fluid's does",
        ),
        at_most(
            "Gamma found",
            max(abs(point.abscissa - point.at) for point in points),
            MOST_OFF,
            "how far ln Gamma is from where it was aimed at: a longer warm-up",
        ),
        at_least(
            "segments of a coupling", min(p.segments for p in points), FEWEST_TO_QUOTE, "longer trajectories there"
        ),
        at_most("pull of the points", float(np.abs(pulls).max()), MOST_PULL, "a point is off the smooth curve"),
    ]
    if target is not None:
        items.append(at_most(ERROR_ITEM, curve.error, target, "more segments"))
    return tuple(items)
