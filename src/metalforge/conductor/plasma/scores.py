"""Scores of the transport heads: skill by task, head and route, and the simulation time that they save."""

import msgspec

from metalforge.conductor.scores import CouplingInterval


class TransportScore(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One head in one task on one route: root mean squares of logarithms, and the skill with its 95 % interval."""

    task: str
    head: str
    route: str
    rms: float
    baseline: float
    baseline_name: str
    skill: CouplingInterval
    points: int
    runs: int
    trusted: bool = False


class BaselineScore(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The error of a baseline on test runs: the root mean square of logarithms."""

    task: str
    head: str
    baseline: str
    rms: float


class TestedPlasma(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The runs that heads were tested on: they act on runs like these."""

    __test__ = False

    kappa: tuple[float, float]
    ratio: tuple[float, float]
    """Of Gamma / Gamma_m."""
    particles: tuple[int, ...]
    window: float

    def lacks(self, kappa: float, ratio: float, particles: int) -> str | None:
        """Return what a run is that none of these was; None where it is like them."""
        if particles not in self.particles:
            return f"{', '.join(map(str, self.particles))} particles, not {particles}"
        if not self.kappa[0] - 1e-9 <= kappa <= self.kappa[1] + 1e-9:
            return f"kappa from {self.kappa[0]:g} to {self.kappa[1]:g}, not {kappa:g}"
        if not 0.9 * self.ratio[0] <= ratio <= 1.1 * self.ratio[1]:
            return f"Gamma/Gamma_m from {self.ratio[0]:g} to {self.ratio[1]:g}, not {ratio:.3g}"
        return None


class TransportStudy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that was measured of the heads, but for when to stop."""

    scores: tuple[TransportScore, ...]
    baselines: tuple[BaselineScore, ...]
    label_noise: tuple[float, float]
    """Root mean square of the errors of test labels, as their runs say them: nobody can be better."""
    left_out: tuple[float, float]
    """What heads were off on training state points that were left out."""
    tested_on: TestedPlasma
    train_runs: int
    test_runs: int


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


class TransportEvaluation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Scores of the two heads on held-out runs, and the time that they save."""

    study: TransportStudy
    stops: tuple[StopScore, ...]
    test_seeds: tuple[int, ...]
    corpus_sha256: str

    def trusted(self, head: str, route: str = "f32-software") -> bool:
        """Return whether a head has skill with its parameters hidden, on a route."""
        scores = self.study.scores
        return any(s.trusted for s in scores if (s.task, s.head, s.route) == ("T1", head, route))
