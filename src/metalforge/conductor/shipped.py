"""The weights that come with the package: a trained conductor-11, what it scored on held-out chains, and its making."""

from functools import cache
from importlib.resources import as_file, files

import msgspec

from metalforge.reservoir.files import load_weights
from metalforge.reservoir.weights import EsnWeights

from .provenance import Provenance, read_provenance
from .scores import Evaluation

__all__ = ["default_provenance", "default_scores", "default_weights"]

FOLDER = files("metalforge.conductor") / "data"
WEIGHTS, SCORES = FOLDER / "conductor-11.safetensors", FOLDER / "conductor-11.json"


@cache
def default_weights() -> EsnWeights:
    """Return the shipped network: fifty features, 128 units, the heads of conductor-11."""
    with as_file(WEIGHTS) as path:
        return load_weights(path)


@cache
def default_scores() -> Evaluation:
    """Return what `conductor evaluate` measured of the shipped network."""
    return msgspec.json.decode(SCORES.read_bytes(), type=Evaluation)


def default_provenance() -> Provenance:
    """Return the command, seeds and corpus that made the shipped network."""
    with as_file(WEIGHTS) as path:
        made = read_provenance(path)
    assert made is not None, "the shipped file is written by `conductor train`, which says how"
    return made
