"""Candidates scored by somebody else's predictions, such as the heads of a conductor."""

from collections.abc import Sequence

from metalforge.core.steering import History, Observation, Setting, SteererState, Suggestion
from metalforge.core.steering_rules import AdaptiveDecision, Score, steer_adaptive

__all__ = ["Adaptive"]


class Adaptive:
    """A steerer from `score(beta) -> (priority, uncertainty)`, by the rule of `steer_adaptive`.

    It stops suggesting when the scan is saturated, and falls back on the widest gap where nothing can be scored. Pure
    given its history and the score: whoever retrains the score journals that.
    """

    name = "adaptive"

    def __init__(
        self,
        beta_min: float,
        beta_max: float,
        *,
        score: Score | None = None,
        n_candidates: int = 40,
        weight: float = 0.5,
        exclusion: float | None = None,
    ) -> None:
        self.history = History(beta_min, beta_max)
        self.score = score
        self.n_candidates = n_candidates
        self.weight = weight
        self.exclusion = exclusion
        # Wrong settings are refused now rather than in the middle of a campaign.
        steer_adaptive([], [], beta_min, beta_max, n_candidates=n_candidates, weight=weight, exclusion=exclusion)

    def tell(self, observations: Sequence[Observation]) -> None:
        """Take what came out."""
        self.history.tell(observations)

    def decide(self, pending: Sequence[float] = ()) -> AdaptiveDecision:
        """Return the next point, or none, with the reason and whether the scan is saturated."""
        return steer_adaptive(
            self.history.measured,
            self.history.asked(1, pending),
            self.history.beta_min,
            self.history.beta_max,
            score=self.score,
            n_candidates=self.n_candidates,
            weight=self.weight,
            exclusion=self.exclusion,
        )

    def ask(self, n: int = 1, pending: Sequence[float] = ()) -> list[Suggestion]:
        """Return at most n points, each chosen with the ones before it queued; none when the scan is saturated."""
        queued = self.history.asked(n, pending)
        chosen: list[Suggestion] = []
        for _ in range(n):
            suggestion = self.decide(queued).suggestion
            if suggestion is None:
                break
            chosen.append(suggestion)
            queued.append(suggestion.beta)
        return chosen

    def state(self) -> SteererState:
        """Return all that `ask` depends on, but for the score."""
        settings: dict[str, Setting] = {
            "n_candidates": self.n_candidates,
            "weight": self.weight,
            "exclusion": self.exclusion,
        }
        return self.history.state(self.name, settings)
