"""Files of the deployed format that are kept: they must give the same outputs for the same inputs.

No version has been released. Until then the format may change. The plan is that of the network:

    weights = load_weights("deployed-v1.safetensors")
    plan = OperationRouter(objective="hw_only").plan(graph_from_esn(weights))
    scaling = {"features": weights.features, "heads": weights.heads}
    deploy(plan, "deployed-v1.mfd", provenance={"from": "the first version"}, **scaling)
"""

from pathlib import Path

import numpy as np

from metalforge.hybrid import load
from metalforge.reservoir.files import load_weights
from metalforge.reservoir.weights import Ranges

FOLDER = Path(__file__).parent
RAW = 20 + 3 * np.sin(np.arange(12).reshape(6, 2))
"""Temperatures, say."""
NETWORK = [
    [14.8688, 0.5943],
    [14.7849, 0.5535],
    [15.3693, 0.4213],
    [15.0959, 0.5412],
    [14.8073, 0.5648],
    [15.3444, 0.4236],
]
PLAN = [
    [14.8644, 0.5908],
    [14.7965, 0.5493],
    [15.3809, 0.4257],
    [15.1009, 0.5431],
    [14.8143, 0.5631],
    [15.3502, 0.4290],
]


def test_the_network_says_what_it_said():
    file = FOLDER / "deployed-v1.safetensors"
    with load(file) as model:
        assert np.allclose(model.predict(RAW), NETWORK, atol=2e-4)
        assert model.provenance["from"] == "the first version"
    weights = load_weights(file)
    assert (weights.ranges, weights.ridge) == (Ranges(1.0, 1.0), 0.01)


def test_the_plan_says_what_it_said():
    with load(FOLDER / "deployed-v1.mfd") as model:
        assert np.allclose(model.predict(RAW), PLAN, atol=2e-4)
        assert model.device.statistics().calls > 0
