"""Scores in which heads have earned their trust, on chains as tests run them: what ships may trust others, or none."""

import msgspec

from metalforge.conductor.scores import HeadScores, TestedKind
from metalforge.conductor.shipped import shipped_scores

TRUSTED = ("thermalization", "phase", "anomaly", "cg_estimate", "rejection")
KINDS = (
    TestedKind(algorithm="heatbath", n_t=(2, 4), aspect=(1.0, 4.0)),
    TestedKind(algorithm="hmc", n_t=(2, 4), aspect=(1.0, 2.0), integrators=("leapfrog",)),
    TestedKind(algorithm="hmc", flavors=4, n_t=(2,), aspect=(2.0, 2.0), integrators=("leapfrog",)),
)


def scores(*heads: str) -> HeadScores:
    """Return the shipped scores with these heads trusted (`TRUSTED` without)."""
    judged = tuple(
        msgspec.structs.replace(score, trusted=score.name in (heads or TRUSTED), skill=0.3)
        for score in shipped_scores().heads
    )
    return HeadScores(heads=judged, tested_on=KINDS)
