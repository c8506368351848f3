"""A steerer whose candidates are scored by a conductor's priority head, as long as that head is trusted.

    score = priority + weight * spread          by `core.steering.steer_adaptive`, saturation rule included

Where the head is not trusted, not trained, or fails, another steerer decides, or without one the widest gap; every
suggestion names which of them spoke (`by`), and `standing` says why. A head without skill on held-out couplings is the
common case, not an error: it is no part of the reasons.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cache
from typing import TypeAlias

import msgspec

from metalforge.core.errors import MetalforgeError, SpecError
from metalforge.core.phases import Phase
from metalforge.core.steering import (
    AdaptiveDecision,
    History,
    Observation,
    Score,
    Setting,
    Steerer,
    SteererState,
    Suggestion,
    steer_adaptive,
)

from .features import ChainContext, MetaRow
from .questions import HeadQuestion, PlannedRun
from .trust import Standing
from .worker import Worker

Meta: TypeAlias = Callable[[tuple[Observation, ...]], Sequence[MetaRow]] | Sequence[MetaRow]
"""What earlier runs found; a function makes it from what the steerer was told, so that it stays pure."""
HEAD = "beta_priority"


class ConductorSteerer:
    """Places measurements by the priority head when it is trusted, else by `fallback`, else by the widest gap.

    Pure given its history, the weights and the standing of the head: whoever retrains the one or judges the other
    journals that. `state()` has the standing it would decide by.

    Parameters
    ----------
    worker
        Asked about a run at each candidate, and judges the head; None: there is none, and the fallback decides.
    context
        The chain that would be run; its `beta` is replaced by the candidate's.
    fallback
        Told and asked as this one is, within the same range; its settings appear in `state()` as `fallback.NAME`.
    meta
        What earlier runs found, for the frames.
    n_candidates, weight, exclusion
        Of `steer_adaptive`; `exclusion` is by default 0.3 of the candidates' spacing.
    """

    name = "conductor"

    def __init__(
        self,
        beta_min: float,
        beta_max: float,
        *,
        worker: Worker | None,
        context: ChainContext,
        fallback: Steerer | None = None,
        meta: Meta = (),
        head: str = HEAD,
        phase: Phase = "measure",
        n_candidates: int = 40,
        weight: float = 0.5,
        exclusion: float | None = None,
    ) -> None:
        self.history = History(beta_min, beta_max)
        self.worker, self.context = worker, context
        self.fallback, self.meta, self.head, self.phase = fallback, meta, head, phase
        self.n_candidates, self.weight, self.exclusion = n_candidates, weight, exclusion
        # Wrong settings are refused now rather than in the middle of a campaign.
        steer_adaptive([], [], beta_min, beta_max, n_candidates=n_candidates, weight=weight, exclusion=exclusion)
        if fallback is not None:
            inner = fallback.state()
            if inner.beta_min < self.history.beta_min or inner.beta_max > self.history.beta_max:
                raise SpecError(
                    f"`fallback` must stay in [{beta_min}, {beta_max}]. Got {fallback.name} over "
                    f"[{inner.beta_min}, {inner.beta_max}]"
                )
            if inner.observations:
                self.history.tell(inner.observations)

    @property
    def standing(self) -> Standing:
        """Whether the head may steer, and why."""
        if self.worker is None:
            return Standing(False, None, 0, "no conductor")
        if self.head not in self.worker.layout.names:
            return Standing(False, None, 0, f"the layout has no {self.head}")
        spec = self.worker.layout[self.head]
        if not (spec.trained and spec.available):
            return Standing(False, None, 0, "untrained" if spec.available else "unavailable")
        return self.worker.trust.standing(self.head)

    def tell(self, observations: Sequence[Observation]) -> None:
        """Take what came out: all of it, or nothing when this or the fallback refuses one."""
        after = deepcopy(self.history)
        after.tell(observations)
        if self.fallback is not None:
            self.fallback.tell(observations)
        self.history = after

    def ask(self, n: int = 1, pending: Sequence[float] = ()) -> list[Suggestion]:
        """Return at most n points, none when the scan is saturated or the fallback has enough."""
        queued = self.history.asked(n, pending)
        standing = self.standing
        if not standing.trusted:
            return self._without_head(n, queued)
        try:
            score = self._score()
            return self._chosen(n, queued, score, f"head:{self.head}", f"trusted ({standing.why}); ")
        except MetalforgeError as error:
            return self._without_head(n, queued, f"{self.head} failed ({str(error).splitlines()[0]}); ")

    def decide(self, pending: Sequence[float] = ()) -> AdaptiveDecision:
        """Return what the priority head, or the widest gap without it, would say to one point more."""
        score = self._score() if self.standing.trusted else None
        return self._decided(self.history.asked(1, pending), score)

    def state(self) -> SteererState:
        """Return all that `ask` depends on but the weights: settings, the head's standing, and the fallback's own."""
        settings: dict[str, Setting] = {
            "head": self.head,
            "standing": self.standing.why,
            "trusted": int(self.standing.trusted),
            "n_candidates": self.n_candidates,
            "weight": self.weight,
            "exclusion": self.exclusion,
            "dims": "x".join(map(str, self.context.dims)),
            "mass": self.context.mass,
            "flavors": float(self.context.flavors),
            "fallback": None if self.fallback is None else self.fallback.name,
        }
        if self.fallback is not None:
            settings |= {f"fallback.{name}": value for name, value in self.fallback.state().settings.items()}
        return self.history.state(self.name, settings)

    def _without_head(self, n: int, queued: list[float], failed: str = "") -> list[Suggestion]:
        if self.fallback is None:
            return self._chosen(n, queued, None, "rule:widest-gap", failed)
        return [
            Suggestion(beta=s.beta, score=s.score, reason=failed + s.reason, by=s.by or self.fallback.name)
            for s in self.fallback.ask(n, queued)
        ]

    def _chosen(self, n: int, queued: list[float], score: Score | None, by: str, said: str) -> list[Suggestion]:
        """Return points one after the other, each as if those before it were queued."""
        chosen: list[Suggestion] = []
        while len(chosen) < n:
            found = self._decided([*queued, *(c.beta for c in chosen)], score).suggestion
            if found is None:
                break
            chosen.append(Suggestion(beta=found.beta, score=found.score, reason=said + found.reason, by=by))
        return chosen

    def _decided(self, queued: Sequence[float], score: Score | None) -> AdaptiveDecision:
        return steer_adaptive(
            self.history.measured,
            queued,
            self.history.beta_min,
            self.history.beta_max,
            score=score,
            n_candidates=self.n_candidates,
            weight=self.weight,
            exclusion=self.exclusion,
        )

    def _score(self) -> Score:
        """Return priority and spread of a coupling by the head; each coupling is asked for once."""
        worker = self.worker
        assert worker is not None  # a head that is trusted has one
        rows = tuple(self.meta(self.history.observations) if callable(self.meta) else self.meta)

        @cache
        def score(beta: float) -> tuple[float, float | None]:
            run = PlannedRun(context=msgspec.structs.replace(self.context, beta=beta), meta=rows, phase=self.phase)
            answer = worker.ask(HeadQuestion(head=self.head, of=run)).get()
            if answer.source != "head" or answer.value is None:
                raise SpecError(f"{answer.why} at beta {beta:g}")
            return answer.value, answer.spread

        return score
