"""A user's own file, checked by `mypy --strict`: the types that metalforge promises are those a user sees."""

import sys

import numpy as np
from numpy.typing import NDArray

from metalforge import campaign
from metalforge.lattice.campaign import Lattice
from metalforge.pipeline import Collect, PipelineBuilder, Stage
from metalforge.reservoir import EsnWeights, fit, make_esn, predict
from metalforge.reservoir.datasets import narma


class Scale(Stage[float, float]):
    """Multiplies what comes."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def step(self, state: None, item: float) -> tuple[None, float]:
        return state, self.factor * item


def forecast(units: int) -> NDArray[np.floating]:
    u, y = narma(400, seed=1)
    trained: EsnWeights = fit(make_esn(units=units, inputs=1, seed=1), u, y, ridge=1e-6, washout=50)
    return predict(trained, u)  # one series goes in, so one array comes out


def small_campaign(updates: int) -> tuple[float | None, bool]:
    spec = campaign.CampaignSpec(
        theory=Lattice(volumes=((4, 4, 4, 2),)),
        budget=campaign.Budget(trajectories=updates),
        running=campaign.Running(deterministic=True, producers=2),
    )
    found: campaign.Results = campaign.run(spec)
    return found.value, found.established


if __name__ == "__main__":
    results = Collect()
    builder = PipelineBuilder("typed").stage("numbers", None, lambda: [1.0, 2.0]).stage("scale", None, Scale(3.0))
    builder.stage("results", None, results).edge("numbers", "scale").edge("scale", "results").build().run()
    print(results.payloads, forecast(50).shape, small_campaign(600 if "--quick" in sys.argv else 4000)[1])
