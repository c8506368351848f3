"""Records of the study of the transport heads, of which the package ships the scores."""

import msgspec

from metalforge.conductor.plasma.heads import TransportScore, TransportScores, TransportStudy
from metalforge.conductor.scores import CouplingInterval


class JudgedScore(TransportScore, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One head in one task on one route: root mean squares of logarithms, and the skill with its 95 % interval."""

    rms: float
    baseline: float
    baseline_name: str
    skill: CouplingInterval
    points: int
    runs: int


class BaselineScore(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The error of a baseline on test runs: the root mean square of logarithms."""

    task: str
    head: str
    baseline: str
    rms: float


class StopScore(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule for one target over test runs that reached it: lengths, errors and how often they cover."""

    rule: str
    target: float
    runs: int
    reached: int
    """Within the length of the run; the others are counted with all of it."""
    time: float
    """The mean time until it stopped, in 1 / omega_p."""
    atom_steps: float
    """On the mean."""
    saved: float
    """Atom-steps saved, as a share of what the jackknife's rule takes."""
    coverage_68: float
    coverage_95: float
    rms: float
    """Of what was left against the other runs."""


class JudgedStudy(TransportStudy, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that was measured of the heads, but for when to stop."""

    scores: tuple[JudgedScore, ...]
    baselines: tuple[BaselineScore, ...]
    label_noise: tuple[float, float]
    """Root mean square of the errors of test labels, as their runs say them: nobody can be better."""
    train_runs: int
    test_runs: int


class TransportEvaluation(TransportScores, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Scores of the two heads on held-out runs, and the time that they save."""

    study: JudgedStudy
    stops: tuple[StopScore, ...]
    test_seeds: tuple[int, ...]
    corpus_sha256: str
