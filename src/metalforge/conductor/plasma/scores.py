"""Which transport heads are trusted, and the runs on which they were tested: what the package reads of their study."""

from functools import cache

import msgspec

from metalforge.conductor.shipped import FOLDER

from .heads import LAYOUT


class TransportScore(msgspec.Struct, frozen=True, kw_only=True):
    """One head in one task on one route."""

    task: str
    head: str
    route: str
    trusted: bool = False


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


class TransportStudy(msgspec.Struct, frozen=True, kw_only=True):
    """Scores of the heads, and on which runs they were measured."""

    scores: tuple[TransportScore, ...]
    left_out: tuple[float, float]
    """What heads were off on training state points that were left out."""
    tested_on: TestedPlasma


class TransportScores(msgspec.Struct, frozen=True, kw_only=True):
    """Scores of the two heads on held-out runs."""

    study: TransportStudy

    def trusted(self, head: str, route: str = "f32-software") -> bool:
        """Return whether a head has skill with its parameters hidden, on a route."""
        scores = self.study.scores
        return any(s.trusted for s in scores if (s.task, s.head, s.route) == ("T1", head, route))


@cache
def shipped_transport() -> TransportScores:
    """Return the scores of the heads that come with the package."""
    return msgspec.json.decode((FOLDER / f"{LAYOUT}.json").read_bytes(), type=TransportScores)
