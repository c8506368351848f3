"""What the worker answers: a record a kind of question, and the response that says where the answer comes from."""

import re
from typing import Literal, TypeAlias

import msgspec

from metalforge.core.quantities import Measured

__all__ = [
    "Anomaly",
    "Answer",
    "BetaPriorities",
    "Bootstrapped",
    "Convergence",
    "Iterations",
    "NextRun",
    "Parameters",
    "PhaseLabel",
    "Quality",
    "QuenchedLength",
    "Rejection",
    "ResidualAdvice",
    "Response",
    "Retrained",
    "Source",
    "Steered",
    "Stopped",
    "WeightsSaved",
]

Source: TypeAlias = Literal["head", "heuristic", "command"]


def _tag(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


class _Answer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="answer", tag=_tag):
    pass


class BetaPriorities(_Answer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A score a candidate, in the order of the candidates."""

    betas: tuple[float, ...]
    scores: tuple[float, ...]


class Parameters(_Answer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Steps of a trajectory: n_steps * step_size is its length."""

    step_size: float
    n_steps: int


class Iterations(_Answer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Iterations of one solve."""

    per_solve: float


class QuenchedLength(_Answer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Updates of a quenched phase."""

    updates: int


class Convergence(_Answer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether a chain is in equilibrium, and how probable that is."""

    converged: bool
    probability: float


class Rejection(_Answer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether the accept test will probably reject."""

    likely_rejected: bool
    probability: float


class PhaseLabel(_Answer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The phase, and the probability that it is the deconfined one."""

    label: Literal["confined", "transition", "deconfined"]
    deconfined: float


class Quality(_Answer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How good a chain is, in the unit of what answered: the formula's points and the head's samples do not mix."""

    value: float
    unit: str


class Anomaly(_Answer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether something is wrong."""

    is_anomaly: bool
    score: float


class Steered(_Answer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The next coupling, or None; `saturated` when another one would teach little."""

    beta: float | None
    saturated: bool
    score: float
    reason: str


class NextRun(_Answer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Couplings of the next run."""

    betas: tuple[float, ...]
    mass: float
    dims: tuple[int, int, int, int]


class ResidualAdvice(_Answer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether a solve seems to stall, and how many iterations until it should be looked at again."""

    stalled: bool
    score: float
    check_interval: int


class Retrained(_Answer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """So many records were learned from."""

    records: int


class Bootstrapped(_Answer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The weights, or so many records, were taken over."""

    path: str
    records: int | None = None


class WeightsSaved(_Answer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The weights are in this file."""

    path: str


class Stopped(_Answer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The worker has stopped."""


Answer: TypeAlias = (
    BetaPriorities
    | Parameters
    | Iterations
    | QuenchedLength
    | Convergence
    | Rejection
    | PhaseLabel
    | Quality
    | Anomaly
    | Steered
    | NextRun
    | ResidualAdvice
    | Retrained
    | Bootstrapped
    | WeightsSaved
    | Stopped
)


class Response(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The answer to one request, and who gave it."""

    id: int
    """The request's, by which its outcome is reported later."""
    request: str
    """The kind of request."""
    answer: Answer
    source: Source
    head: str | None = None
    """The head that answered, or would have."""
    formula: str | None = None
    """The formula that answered, when a head did not."""
    why: str
    """Why it was this source: trusted, untrusted, unavailable, deadline, shutdown, died, error, and details."""
    note: str = ""
    """What the formula had to assume."""
    act: bool = True
    """Whether it may change what the chain does. False in measurement, where it is recorded and scored only."""
    seconds: Measured
    """From the request to its answer."""
