"""What can be asked of the conductor's worker: one record a question, checked when it is made.

They are the origin's messages, with three differences. A question carries what its formula needs, so that every one
can be answered without a network; where the origin had the known transition built in, `centre` is a measured one, or
None. `chain` names the running chain whose carried state the heads are read from; before a run they see one context
frame. Numbers of iterations are per solve: the origin compared totals of a trajectory with thresholds of a solve.
"""

import math
import re
from collections.abc import Iterable
from typing import Any, TypeAlias

import msgspec

from metalforge.core.errors import SpecError

from .features import MetaRow, Stage

__all__ = [
    "AnomalyCheck",
    "AnyRequest",
    "BootstrapFromLog",
    "BootstrapFromWeights",
    "CgResidual",
    "Command",
    "ExportWeights",
    "PhaseClassify",
    "PreScreenBeta",
    "PredictCgIterations",
    "PredictQuenchedLength",
    "QualityScore",
    "QuenchedThermCheck",
    "Question",
    "RecommendNextRun",
    "RejectPredict",
    "Request",
    "Retrain",
    "Shutdown",
    "SteerAdaptive",
    "SuggestParameters",
    "ThermCheck",
    "kind_of",
]

Dims: TypeAlias = tuple[int, int, int, int]


def _tag(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="request", tag=_tag):
    """Anything that can be asked."""


class Command(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something to do; no formula can stand in for it, so it is done or it is an error."""


class Question(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something to predict, by a head or by a formula; `mass` and `flavors` are 0 without sea quarks."""

    dims: Dims | None = None
    mass: float = 0.0
    flavors: float = 0.0
    phase: Stage = "measure"
    """The stage of the run that is asked about."""
    chain: str | None = None
    meta: tuple[MetaRow, ...] = ()
    """What earlier runs found."""
    features: dict[str, float] = {}
    """More entries of the frame the heads see, by the names of the feature schema; they come last.

    With a chain, they make the frame that would come next; `FrameBuilder.midway` gives a whole one."""

    def __post_init__(self) -> None:
        if self.dims is not None and min(self.dims) < 1:
            raise SpecError(f"`dims` must be four extents of at least 1. Got {self.dims}")
        for name in ("mass", "flavors"):
            if not 0 <= getattr(self, name) < math.inf:
                raise SpecError(f"`{name}` must be at least 0, and 0 in a quenched run. Got {getattr(self, name)}")


class _Point(Question, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question about one coupling."""

    beta: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _finite(beta=self.beta)


class _NearTransition(_Point, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question whose formula is about the distance to the transition, as far as that is known."""

    centre: float | None = None
    """The transition's coupling as measured so far; None stands for the middle of the range."""
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _finite(centre=self.centre)
        if (self.low is None) != (self.high is None):
            raise SpecError("`low` and `high` make a range together: give both or none")
        if self.low is not None and self.high is not None:
            _range(self.low, self.high)


class PreScreenBeta(Question, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much each of these couplings is worth a run."""

    dims: Dims
    candidates: tuple[float, ...]
    centre: float | None = None
    """The transition's coupling as measured so far; None stands for the middle of the candidates' range."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.candidates:
            raise SpecError("`candidates` must name at least one coupling")
        _all_finite("candidates", self.candidates)
        _finite(centre=self.centre)


class SuggestParameters(_Point, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which step size suits a trajectory of this length."""

    dims: Dims
    trajectory_length: float = 0.5
    phase: Stage = "warmup"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.trajectory_length < math.inf:
            raise SpecError(f"`trajectory_length` must be above 0. Got {self.trajectory_length}")


class PredictCgIterations(_Point, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many iterations one solve will take."""

    dims: Dims
    mass: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mass == 0:
            raise SpecError("`mass` must be above 0: a quenched run solves nothing")


class PredictQuenchedLength(_NearTransition, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many quenched updates bring a chain to equilibrium."""

    dims: Dims
    phase: Stage = "quenched"


class QuenchedThermCheck(_Point, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether the quenched chain is in equilibrium. `window` are its last plaquettes, oldest first."""

    window: tuple[float, ...]
    threshold: float = 0.7
    """The probability from which the answer is yes. The origin had 0.7 in its code and 0.5 in its text."""
    phase: Stage = "quenched"

    def __post_init__(self) -> None:
        super().__post_init__()
        _share(threshold=self.threshold)


class ThermCheck(QuenchedThermCheck, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether the dynamical chain is in equilibrium."""

    phase: Stage = "warmup"


class RejectPredict(_Point, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether the accept test will reject this trajectory; asked on the way, since at its end the answer costs nothing.

    `delta_h_quarter` is the energy violation after a quarter of the steps. An answer may be acted on in warm-up only:
    in measurement, giving up a trajectory that the test might have accepted changes the distribution.
    """

    delta_h_quarter: float
    phase: Stage


class PhaseClassify(_NearTransition, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which phase the chain is in. Its Polyakov loop is the label, and so no part of the question."""

    plaquette: float


class QualityScore(_Point, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How good is what this chain measured. A quenched chain has no iterations."""

    n_measurements: int
    acceptance: float
    cg_iterations: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _share(acceptance=self.acceptance)
        if self.n_measurements < 0:
            raise SpecError(f"`n_measurements` must be at least 0. Got {self.n_measurements}")


class AnomalyCheck(Question, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether something is wrong with this trajectory. Any number may be asked about, also one that is none."""

    beta: float
    plaquette: float
    delta_h: float | None = None
    cg_iterations: float | None = None


class _Scan(Question, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question about where to measure next, in a range that is never left."""

    dims: Dims
    measured: tuple[float, ...]
    low: float
    high: float
    queued: tuple[float, ...] = ()
    n_candidates: int = 40

    def __post_init__(self) -> None:
        super().__post_init__()
        _range(self.low, self.high)
        _all_finite("measured", self.measured)
        _all_finite("queued", self.queued)
        _count(n_candidates=self.n_candidates)


class SteerAdaptive(_Scan, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which coupling should be put into the running scan, if any."""


class RecommendNextRun(_Scan, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which couplings the next run should have."""

    n: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        _count(n=self.n)


class CgResidual(Question, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether this solve gets anywhere. `residuals` are those of its checks, oldest first."""

    residuals: tuple[float, ...]
    iteration: int
    predicted: float | None = None
    """Iterations the solve was predicted to take."""


class Retrain(Command, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Learn from these records. Trust goes on: it judges a head as it is used, learning included."""

    records: tuple[Any, ...]


class BootstrapFromLog(Command, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Learn from the records of a log, with the weights that are loaded."""

    path: str


class BootstrapFromWeights(Command, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Take other weights; they have to earn their trust again."""

    path: str


class ExportWeights(Command, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Write the weights to a file."""

    path: str


class Shutdown(Command, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Stop after everything that was asked before this."""


AnyRequest: TypeAlias = (
    PreScreenBeta
    | SuggestParameters
    | PredictCgIterations
    | PredictQuenchedLength
    | QuenchedThermCheck
    | ThermCheck
    | RejectPredict
    | PhaseClassify
    | QualityScore
    | AnomalyCheck
    | SteerAdaptive
    | RecommendNextRun
    | CgResidual
    | Retrain
    | BootstrapFromLog
    | BootstrapFromWeights
    | ExportWeights
    | Shutdown
)
"""What a record of a request is decoded as."""


def kind_of(request: Request) -> str:
    """Return the name of the kind of request, as in its record: `therm-check`."""
    return str(request.__struct_config__.tag)


def _finite(**values: float | None) -> None:
    for name, value in values.items():
        if value is not None and not math.isfinite(value):
            raise SpecError(f"`{name}` must be a finite number. Got {value}")


def _all_finite(name: str, values: Iterable[float]) -> None:
    for value in values:
        _finite(**{name: value})


def _share(**values: float) -> None:
    for name, value in values.items():
        if not 0 <= value <= 1:
            raise SpecError(f"`{name}` must be between 0 and 1. Got {value}")


def _count(**values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise SpecError(f"`{name}` must be at least 1. Got {value}")


def _range(low: float, high: float) -> None:
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise SpecError(f"`low` must be below `high`, both finite. Got {low} and {high}")
